#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "pipedream/core/error.hpp"
#include "pipedream/schedule/chunk_graph.hpp"
#include "pipedream/schedule/csv.hpp"

namespace pipedream {
namespace {

constexpr std::string_view kSchema = "pipedream.schedule/1";

std::string_view trimmed(std::string_view text) {
  const auto space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '"'; };
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t end = text.find(separator); end != std::string_view::npos; end = text.find(separator)) {
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  parts.push_back(text);
  return parts;
}

/// A file under way: facts from its # lines, action lists from its rows.
class Reader {
 public:
  Reader(std::string_view text, std::string file) : text_(text), file_(std::move(file)) {}

  Schedule read() {
    const std::vector<std::string_view> lines = split(text_, '\n');
    for (line_ = 1; line_ <= lines.size(); ++line_) {
      const std::string_view line = trimmed(lines[line_ - 1]);
      if (line.empty() && (line_ == lines.size() || has_facts_)) continue;
      if (!line.empty() && line.front() == '#') read_fact(trimmed(line.substr(1)));
      else read_row(lines[line_ - 1]);
    }
    line_ = 0;
    if (schedule_.ranks.empty()) fail("it holds no rows of actions", "a row per rank, an action per cell: 0F0,0F1,0B0,0B1");
    if (has_facts_) check_facts();
    else infer_facts();
    return std::move(schedule_);
  }

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& hint = {}) const { throw InputError(place(), what, hint); }
  [[nodiscard]] std::string place() const {
    return line_ == 0 ? file_ : cell_ == 0 ? fmt::format("{}:{}", file_, line_) : fmt::format("{}:{}, cell {}", file_, line_, cell_);
  }

  int number(std::string_view text, const char* what, int least = 0) const {
    int value = 0;
    text = trimmed(text);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < least || value > 1 << 30)
      fail(fmt::format("{} must be a whole number of at least {}: '{}'", what, least, text.substr(0, 30)));
    return value;
  }

  void read_fact(std::string_view fact) {
    cell_ = 0;
    if (!has_facts_) {
      if (fact != kSchema)
        fail(fmt::format("'# {}' is not the head of a schedule file", fact.substr(0, 40)),
             fmt::format("our files begin with '# {}', PyTorch's have no such line", kSchema));
      has_facts_ = true;
      return;
    }
    const std::size_t space = std::min(fact.find(' '), fact.size());
    const std::string_view key = fact.substr(0, space), value = trimmed(fact.substr(space));
    if (key == "name") schedule_.name = value;
    else if (key == "policy") schedule_.policy = value;
    else if (key == "micro-batches") schedule_.micro_batches = number(value, "micro-batches", 1);
    else if (key == "per-step") schedule_.step_micro_batches = number(value, "per-step", 1);
    else if (key == "slices") schedule_.slices = number(value, "slices", 1);
    else if (key == "chunks") read_chunks(value);
    else if (key == "edges") read_edges(value);
    else if (key == "body") read_body(value);
    else fail(fmt::format("unknown fact '{}'", key.substr(0, 30)), "facts are name, policy, chunks, edges, micro-batches, per-step, slices, body");
  }

  void read_chunks(std::string_view value) {
    for (const std::string_view chunk : split(value, ' ')) {
      schedule_.chunk_ranks.emplace_back();
      for (const std::string_view rank : split(chunk, ',')) schedule_.chunk_ranks.back().push_back(number(rank, "a rank"));
    }
  }

  void read_edges(std::string_view value) {
    if (value.empty()) return;
    for (const std::string_view edge : split(value, ' ')) {
      const auto ends = split(edge, '>');
      if (ends.size() != 2) fail(fmt::format("'{}' is no edge", edge.substr(0, 30)), "edges are source>target");
      schedule_.edges.emplace_back(number(ends[0], "a chunk"), number(ends[1], "a chunk"));
    }
    std::sort(schedule_.edges.begin(), schedule_.edges.end());
  }

  void read_body(std::string_view value) {
    const auto parts = split(value, ' ');
    if (parts.size() != 3) fail("body must be repetitions, micro-batches and versions", "for example # body 10 2 2");
    schedule_.repeats = number(parts[0], "repetitions");
    schedule_.body_micro_batches = number(parts[1], "micro-batches of the body");
    const auto versions = split(parts[2], ',');
    if (versions.size() == 1) schedule_.body_versions = number(parts[2], "versions of the body");
    else
      for (const std::string_view count : versions) schedule_.chunk_body_versions.push_back(number(count, "versions of the body"));
    if (!schedule_.chunk_body_versions.empty()) schedule_.body_versions = schedule_.chunk_body_versions.front();
  }

  void read_row(std::string_view line) {
    RankProgram program;
    std::vector<Action>* part = &program.prologue;
    cell_ = 0;
    for (std::string_view cell : split(line, ',')) {
      ++cell_;
      cell = trimmed(cell);
      if (cell.empty()) continue;
      if (cell == "[" && part == &program.prologue) part = &program.body;
      else if (cell == "]" && part == &program.body) part = &program.epilogue;
      else read_cell(cell, *part);
    }
    if (part == &program.body) fail("the body that [ begins has no ]");
    cell_ = 0;
    schedule_.ranks.push_back(std::move(program));
  }

  void read_cell(std::string_view cell, std::vector<Action>& part) {
    if (cell.front() != '(') {
      if (cell.ends_with("UNSHARD") || cell.ends_with("RESHARD")) return;  // parameters spread over ranks are no matter of the schedule here
      part.push_back(parse_action(cell, place()));
      return;
    }
    const std::size_t end = cell.find(')');
    if (end == std::string_view::npos) fail(fmt::format("'{}' opens a group that has no end", cell.substr(0, 40)));
    if (cell.substr(end + 1) != "OVERLAP_F_B")
      fail(fmt::format("'{}' is no group of actions", cell.substr(0, 40)), "groups are written (3F1;0B2)OVERLAP_F_B");
    const auto members = split(cell.substr(1, end - 1), ';');
    for (std::size_t i = 0; i < members.size(); ++i) {
      part.push_back(parse_action(trimmed(members[i]), place()));
      part.back().joined = i + 1 < members.size();
    }
  }

  template <typename Visit>
  void each_action(Visit&& visit) {
    for (std::size_t rank = 0; rank < schedule_.ranks.size(); ++rank)
      for (auto* part : {&schedule_.ranks[rank].prologue, &schedule_.ranks[rank].body, &schedule_.ranks[rank].epilogue})
        for (Action& action : *part) visit(static_cast<int>(rank), action);
  }

  // So that a few characters cannot ask for gigabytes: every chunk has a forward for every slice of every micro-batch.
  void check_size(std::int64_t chunks, std::int64_t micro_batches, std::int64_t slices) {
    std::int64_t forwards = 0;
    for (const RankProgram& program : schedule_.ranks) {
      const auto count = [](const std::vector<Action>& part) {
        return std::count_if(part.begin(), part.end(), [](const Action& a) { return a.kind == ActionKind::Forward; });
      };
      forwards += count(program.prologue) + count(program.epilogue) + count(program.body) * std::max(0, schedule_.repeats);
    }
    if (chunks > forwards || micro_batches > forwards || slices > forwards || chunks * micro_batches > forwards ||
        chunks * micro_batches * slices > forwards)
      fail(fmt::format("{} chunks, {} micro-batches and {} slices need a forward each, the file has {} forwards", chunks, micro_batches, slices,
                       forwards),
           "every chunk runs every micro-batch once");
  }

  void check_facts() {
    if (schedule_.chunk_ranks.empty() || schedule_.micro_batches < 1) fail("the facts 'chunks' and 'micro-batches' are missing");
    const auto chunks = schedule_.chunk_ranks.size();
    if (!schedule_.chunk_body_versions.empty() && schedule_.chunk_body_versions.size() != chunks)
      fail("the body gives versions for another number of chunks");
    if (static_cast<std::int64_t>(schedule_.repeats) * schedule_.body_micro_batches > schedule_.micro_batches)
      fail("the body repeats for more micro-batches than there are");
    check_size(static_cast<std::int64_t>(chunks), schedule_.micro_batches, schedule_.slices);
    each_action([&](int, const Action& action) {
      if (action.chunk >= schedule_.num_chunks()) fail(fmt::format("{}: chunks are 0 to {}", to_string(action), schedule_.num_chunks() - 1));
    });
    static_cast<void>(chunk_graph(schedule_));
  }

  void infer_facts() {
    std::int64_t chunks = 0, micro_batches = 0, slices = 0;
    each_action([&](int, const Action& action) {
      chunks = std::max<std::int64_t>(chunks, action.chunk + std::int64_t{1});
      micro_batches = std::max<std::int64_t>(micro_batches, action.micro_batch + std::int64_t{1});
      slices = std::max<std::int64_t>(slices, action.slice + std::int64_t{1});
    });
    check_size(chunks, micro_batches, slices);
    schedule_.name = "file";
    schedule_.policy = "flush";
    schedule_.micro_batches = schedule_.step_micro_batches = static_cast<int>(micro_batches);
    schedule_.slices = static_cast<int>(slices);
    schedule_.edges = chain_edges(static_cast<int>(chunks));
    infer_ranks(static_cast<std::size_t>(chunks));
    each_action([&](int, Action& action) { infer_peer(action, static_cast<int>(chunks)); });
    if (!has_steps_) add_steps();
  }

  // Replicas of a chunk share its micro-batches in turn, so the one that runs micro-batch i is entry i.
  void infer_ranks(std::size_t chunks) {
    std::vector<std::map<int, int>> first(chunks);  // rank, its first micro-batch
    each_action([&](int rank, Action& action) {
      has_steps_ = has_steps_ || action.kind == ActionKind::Step;
      if (action.kind != ActionKind::Forward) return;
      const auto [entry, is_new] = first[static_cast<std::size_t>(action.chunk)].try_emplace(rank, action.micro_batch);
      if (!is_new) entry->second = std::min(entry->second, action.micro_batch);
    });
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
      std::vector<std::pair<int, int>> order;
      for (const auto& [rank, micro_batch] : first[chunk]) order.emplace_back(micro_batch, rank);
      if (order.empty()) fail(fmt::format("chunk {} has no forward", chunk));
      std::sort(order.begin(), order.end());
      schedule_.chunk_ranks.emplace_back();
      for (const auto& [micro_batch, rank] : order) schedule_.chunk_ranks.back().push_back(rank);
    }
    // A reduction among one replica is PyTorch's own affair (data parallelism outside the pipe).
    for (RankProgram& program : schedule_.ranks)
      std::erase_if(program.prologue, [&](const Action& a) {
        return a.kind == ActionKind::Reduce && schedule_.chunk_ranks[static_cast<std::size_t>(a.chunk)].size() < 2;
      });
  }

  void infer_peer(Action& action, int chunks) const {
    if (!is_transfer(action.kind) || action.peer != Action::kNone) return;
    const bool forward = action.kind == ActionKind::SendActivation || action.kind == ActionKind::ReceiveGradient;
    action.peer = action.chunk + (forward ? 1 : -1);
    if (action.peer < 0 || action.peer >= chunks) fail(fmt::format("{}: there is no chunk {} it", to_string(action), forward ? "behind" : "before"));
  }

  void add_steps() {
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank)
      for (const int chunk : chunks_of(schedule_, rank)) {
        auto& list = schedule_.ranks[static_cast<std::size_t>(rank)].prologue;
        if (schedule_.chunk_ranks[static_cast<std::size_t>(chunk)].size() > 1)
          list.push_back({ActionKind::Reduce, chunk, schedule_.micro_batches - 1});
        list.push_back({ActionKind::Step, chunk, schedule_.micro_batches - 1});
      }
  }

  std::string_view text_;
  std::string file_;
  std::size_t line_ = 0, cell_ = 0;
  bool has_facts_ = false, has_steps_ = false;
  Schedule schedule_;
};

}  // namespace

Schedule schedule_from_csv(const std::string& text, const std::string& file) { return Reader(text, file).read(); }

}  // namespace pipedream
