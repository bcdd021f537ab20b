#include "pipedream/sim/trace.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "pipedream/core/error.hpp"
#include "pipedream/core/json.hpp"

namespace pipedream {
namespace {

constexpr double kMicrosecondsPerMs = 1000;

const char* category(ActionKind kind) {
  switch (kind) {
    case ActionKind::Forward:
      return "forward";
    case ActionKind::Recompute:
      return "recompute";
    case ActionKind::Backward:
      return "backward";
    case ActionKind::BackwardInput:
      return "backward input";
    case ActionKind::BackwardWeight:
      return "backward weight";
    case ActionKind::SendActivation:
    case ActionKind::SendGradient:
      return "send";
    case ActionKind::ReceiveActivation:
    case ActionKind::ReceiveGradient:
      return "receive";
    case ActionKind::Reduce:
      return "reduce";
    case ActionKind::Step:
      return "step";
    case ActionKind::Predict:
      return "predict";
    case ActionKind::Drop:
      return "drop";
    case ActionKind::Wait:
      return "wait";
  }
  return "";
}

// Texts of ours hold no characters that JSON escapes, except what a title may hold.
std::string quoted(const std::string& text) { return Json(text).dump(); }

}  // namespace

std::string trace_to_chrome_json(const Trace& trace) {
  // Written by hand: traces are large, and a tree of JSON values would take tens of times their size.
  std::string text =
      fmt::format(R"({{"displayTimeUnit":"ms","otherData":{{"schema":"pipedream.trace/1","source":{},"title":{},"num_ranks":{}}},"traceEvents":[)",
                  quoted(trace.source), quoted(trace.title), trace.num_ranks);
  auto out = std::back_inserter(text);
  for (int rank = 0; rank < trace.num_ranks; ++rank) {
    fmt::format_to(out, "{}\n{{\"ph\":\"M\",\"pid\":{},\"name\":\"process_name\",\"args\":{{\"name\":\"rank {}\"}}}}", rank > 0 ? "," : "", rank,
                   rank);
    for (const auto& [thread, name] : {std::pair{0, "compute"}, {1, "transfers"}})
      fmt::format_to(out, ",\n{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_name\",\"args\":{{\"name\":\"{}\"}}}}", rank, thread, name);
  }
  for (std::size_t i = 0; i < trace.actions.size(); ++i) {
    const TimedAction& timed = trace.actions[i];
    const Action& action = timed.action;
    fmt::format_to(out,
                   "{}\n{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"name\":\"{}{}{}\",\"cat\":\"{}\",\"ts\":{},\"dur\":{},\"args\":{{\"action\":\"{}\","
                   "\"start_ms\":{},\"end_ms\":{}}}}}",
                   trace.num_ranks > 0 || i > 0 ? "," : "", timed.rank, is_compute(action.kind) ? 0 : 1, action.chunk, letters(action.kind),
                   action.micro_batch, category(action.kind), timed.start_ms * kMicrosecondsPerMs,
                   (timed.end_ms - timed.start_ms) * kMicrosecondsPerMs, to_string(action), timed.start_ms, timed.end_ms);
  }
  return text + "\n]}\n";
}

Trace trace_from_chrome_json(const std::string& text, const std::string& file) {
  const Json json = parse_json(text, file);
  const JsonView view(json, file);
  const JsonView facts = view.at("otherData");
  require_schema(facts, "pipedream.trace/1");
  Trace trace{facts.at("source").string(), facts.at("title").string(), facts.at("num_ranks").index(), {}};
  for (const JsonView& event : view.at("traceEvents").elements()) {
    if (event.at("ph").string() != "X") continue;
    const JsonView arguments = event.at("args"), action = arguments.at("action");
    TimedAction timed{event.at("pid").index(), parse_action(action.string(), action.place()), arguments.at("start_ms").number(),
                      arguments.at("end_ms").number()};
    if (timed.rank >= trace.num_ranks) event.at("pid").fail(fmt::format("there are {} ranks", trace.num_ranks));
    if (timed.end_ms < timed.start_ms) arguments.fail("it ends before it starts");
    trace.actions.push_back(timed);
  }
  return trace;
}

}  // namespace pipedream
