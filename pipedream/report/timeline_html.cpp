#include "pipedream/report/timeline_html.hpp"

#include <fmt/format.h>

#include "pipedream/core/json.hpp"

namespace pipedream {
namespace {

// Actions go into the page as rows of numbers, which is a third of their size as objects: rank, kind, chunk, micro-batch, slice, version, start, end.
std::string data_of(const std::vector<NamedTrace>& traces) {
  std::string text = "[";
  auto out = std::back_inserter(text);
  for (std::size_t i = 0; i < traces.size(); ++i) {
    const Trace& trace = traces[i].trace;
    std::string title = Json(traces[i].title.empty() ? trace.title : traces[i].title).dump();
    for (std::size_t at = title.find('<'); at != std::string::npos; at = title.find('<', at))
      title.replace(at, 1, "\\u003c");  // cannot end the script
    fmt::format_to(out, "{}{{title:{},ranks:{},actions:[", i > 0 ? "," : "", title, trace.num_ranks);
    bool first = true;
    for (const TimedAction& timed : trace.actions) {
      const Action& action = timed.action;
      if (timed.end_ms <= timed.start_ms) continue;
      fmt::format_to(out, "{}[{},{},{},{},{},{},{:.7g},{:.7g}]", first ? "" : ",", timed.rank, static_cast<int>(action.kind), action.chunk,
                     action.micro_batch, action.slice, action.version, timed.start_ms, timed.end_ms);
      first = false;
    }
    text += "]}";
  }
  return text + "]";
}

constexpr const char* kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>pipedream timeline</title><style>
body{margin:0;font:13px system-ui,sans-serif;background:#fff;color:#222}
header{padding:8px 12px;border-bottom:1px solid #ddd}h2{font-size:14px;margin:10px 12px 2px}
.key{display:inline-block;margin-right:12px}.key i{display:inline-block;width:12px;height:12px;margin-right:4px;vertical-align:-2px}
canvas{display:block;cursor:grab}#tip{position:fixed;pointer-events:none;background:#222;color:#fff;padding:4px 8px;border-radius:3px;display:none;white-space:pre}
</style></head><body><header id="head"></header><div id="all"></div><div id="tip"></div><script>
const traces=)";

constexpr const char* kScript = R"(;
const kinds=['forward','recompute','backward','backward input','backward weight','send activation','receive activation','send gradient','receive gradient','reduce','step','predict','drop','wait'];
const letters=['F','R','B','I','W','','','','','REDUCE','O','P','D','WAIT'];
const colors=['#4c8bf5','#7fd1e8','#34a853','#34a853','#f2b63c','#b9c6d8','#b9c6d8','#cfd8b9','#cfd8b9','#c05ad1','#e0523f','#888','#888','#bbb'];
const end=Math.max(1e-9,...traces.map(t=>t.actions.reduce((m,a)=>Math.max(m,a[7]),0)));
let from=0,to=end;
const used=new Set();traces.forEach(t=>t.actions.forEach(a=>used.add(a[1])));
document.getElementById('head').innerHTML='<b>pipedream timeline</b> &nbsp; '+[...used].sort((a,b)=>a-b).map(k=>`<span class="key"><i style="background:${colors[k]}"></i>${kinds[k]}</span>`).join('')+'<span>wheel zooms, drag shifts, double click shows all</span>';
const isLink=a=>a[1]>=5&&a[1]<=9,label=46,axis=18;
const views=traces.map(t=>{const rows=Array.from({length:t.ranks},()=>[]);t.actions.forEach(a=>rows[a[0]].push(a));rows.forEach(r=>r.sort((x,y)=>x[6]-y[6]));
 const h=document.createElement('h2');h.textContent=t.title;const c=document.createElement('canvas');document.getElementById('all').append(h,c);
 const height=t.ranks>48?14:t.ranks>16?18:26;return{t,rows,c,height};});
function draw(){for(const v of views){const w=document.body.clientWidth,h=v.height*v.t.ranks+axis,d=window.devicePixelRatio||1;
 v.c.width=w*d;v.c.height=h*d;v.c.style.width=w+'px';v.c.style.height=h+'px';const g=v.c.getContext('2d');g.scale(d,d);g.clearRect(0,0,w,h);
 const s=(w-label-8)/(to-from),x=ms=>label+(ms-from)*s;g.font='11px system-ui,sans-serif';g.textBaseline='middle';
 v.rows.forEach((row,r)=>{const y=r*v.height;g.fillStyle=r%2?'#fafafa':'#f3f3f3';g.fillRect(label,y,w-label,v.height);let last=-9;
  for(const a of row){if(a[7]<from)continue;if(a[6]>to)break;const x0=Math.max(label,x(a[6])),x1=Math.min(w,x(a[7]));if(x1<label)continue;const link=isLink(a);
   if(x1-x0<0.4&&x0-last<0.4)continue;last=x0;g.fillStyle=colors[a[1]];const hh=link?3:v.height-5;g.fillRect(x0,y+(link?v.height-4:1),Math.max(0.5,x1-x0-(x1-x0>3?1:0)),hh);
   if(!link&&x1-x0>22){g.fillStyle=a[1]==4||a[1]==1?'#000':'#fff';g.save();g.beginPath();g.rect(x0,y,x1-x0-2,v.height);g.clip();g.fillText(a[2]+letters[a[1]]+a[3]+(a[4]?'.'+a[4]:''),x0+3,y+v.height/2-1);g.restore();}}
  g.fillStyle='#fff';g.fillRect(0,y,label,v.height);g.fillStyle='#444';g.fillText('rank '+r,4,y+v.height/2);});
 g.fillStyle='#444';const raw=(to-from)/8,p=Math.pow(10,Math.floor(Math.log10(raw))),step=[1,2,5,10].map(k=>k*p).find(k=>k>=raw);
 for(let ms=Math.ceil(from/step)*step;ms<=to;ms+=step){g.fillRect(x(ms),v.height*v.t.ranks,1,4);g.fillText(+ms.toPrecision(6)+' ms',x(ms)+3,v.height*v.t.ranks+10);}}}
function msAt(e){const w=document.body.clientWidth;return from+(e.clientX-label)/(w-label-8)*(to-from);}
function clamp(){const span=Math.min(end,to-from);if(from<0)from=0;if(from+span>end)from=end-span;to=from+span;}
const tip=document.getElementById('tip');let drag=null;
for(const v of views){v.c.addEventListener('wheel',e=>{e.preventDefault();const m=msAt(e),f=e.deltaY>0?1.2:1/1.2;from=m-(m-from)*f;to=m+(to-m)*f;if(to-from>end){from=0;to=end}clamp();draw();},{passive:false});
 v.c.addEventListener('mousedown',e=>{drag={x:e.clientX,from,to};});v.c.addEventListener('dblclick',()=>{from=0;to=end;draw();});
 v.c.addEventListener('mousemove',e=>{if(drag){const d=(drag.x-e.clientX)/(document.body.clientWidth-label-8)*(drag.to-drag.from);from=drag.from+d;to=drag.to+d;clamp();draw();return;}
  const box=v.c.getBoundingClientRect(),r=Math.floor((e.clientY-box.top)/v.height),m=msAt(e),row=v.rows[r]||[];const low=(e.clientY-box.top)%v.height>v.height-5;
  let a=row.find(b=>b[6]<=m&&m<=b[7]&&isLink(b)===low)||row.find(b=>b[6]<=m&&m<=b[7]&&!isLink(b));
  if(!a){tip.style.display='none';return;}tip.textContent=`${kinds[a[1]]}\nstage ${a[2]}, micro-batch ${a[3]}${a[4]?', slice '+a[4]:''}${a[5]>=0?'\nversion '+a[5]:''}\n${+(a[7]-a[6]).toPrecision(5)} ms, from ${+a[6].toPrecision(7)}`;
  tip.style.display='block';tip.style.left=Math.min(e.clientX+12,window.innerWidth-190)+'px';tip.style.top=e.clientY+12+'px';});
 v.c.addEventListener('mouseleave',()=>tip.style.display='none');}
window.addEventListener('mouseup',()=>drag=null);window.addEventListener('resize',draw);draw();
</script></body></html>
)";

}  // namespace

std::string timeline_html(const std::vector<NamedTrace>& traces) { return kHead + data_of(traces) + kScript; }

}  // namespace pipedream
