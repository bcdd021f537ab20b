#pragma once

#include <cstdint>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

#include "pipedream/schedule/chunk_graph.hpp"
#include "pipedream/sim/links.hpp"
#include "pipedream/sim/simulate.hpp"

namespace pipedream {

/// The event-driven core of simulate(): one event per computation, at its end, taken in the order of time.
class Engine {
 public:
  Engine(const Schedule& schedule, const SimulationOptions& options);

  /// Runs everything and fills makespan, ranks (times), links, trace and critical path.
  SimulationResult run();

  /// When the forward of a micro-batch on chunk 0 began.
  [[nodiscard]] const std::vector<double>& entry_ms() const { return entry_ms_; }

 private:
  static constexpr std::int32_t kNobody = -1;
  struct Rank {
    std::size_t next = 0;      ///< of its list
    std::size_t unit_end = 0;  ///< of the computation under way
    double clock_ms = 0, start_ms = 0;
    double first_start_ms = -1, last_end_ms = 0;
    std::int32_t last_trace = kNobody;  ///< its latest computation in the trace
    bool blocked = false;
    double exchanged_ms = 0;  ///< asp: when the latest exchange of weights is over
  };
  /// Inputs of a forward or of a backward of one slice of a micro-batch on a chunk.
  struct Inputs {
    double ready_ms = 0;
    std::int32_t from = kNobody;  ///< the computation in the trace that came last
    std::int32_t missing = 0;
  };
  struct Reduction {
    double ready_ms = 0;
    std::int32_t arrived = 0;
    bool done = false;
  };
  struct Event {
    double ms;
    std::int32_t rank;
    bool operator>(const Event& other) const { return ms > other.ms || (ms == other.ms && rank > other.rank); }
  };
  enum class Cause { None, Activation, Gradient, Reduction };

  void go_on(int rank);
  bool begin(int rank);
  void finish(int rank);
  void hand_over(int rank, const Action& action, double now_ms);
  void deliver(const Action& action, int other, bool gradient, double arrival_ms);
  void send(int rank, const Action& action, double now_ms);
  void reduce(int rank, const Action& action);
  void exchange(int rank, const Action& action);
  [[nodiscard]] double duration_ms(int rank, const Action& action) const;
  [[nodiscard]] Inputs* inputs_of(const Action& action);
  [[nodiscard]] Reduction& reduction_of(const Action& action);
  [[nodiscard]] double edge_bytes(int source, int target) const;
  void record(int rank, const Action& action, double start_ms, double end_ms, std::int32_t critical);
  [[noreturn]] void fail_stuck() const;
  void finish_figures(SimulationResult& result) const;
  [[nodiscard]] std::vector<TimedAction> critical_path() const;

  const Schedule& schedule_;
  const SimulationOptions& options_;
  ActionLists lists_;
  ChunkGraph graph_;
  WorkIndex index_;
  Links links_;
  std::vector<Rank> ranks_;
  std::vector<RankFigures> figures_;
  std::vector<Inputs> forward_, backward_;
  std::vector<std::vector<Reduction>> reductions_;  ///< per chunk and step
  std::vector<std::int32_t> made_by_[2];            ///< computation in the trace that made an activation, a gradient
  std::vector<std::vector<double>> bytes_to_;       ///< per chunk and successor
  std::vector<double> entry_ms_;
  std::vector<ChunkCosts> costs_;
  std::vector<TimedAction> trace_;
  std::vector<std::int32_t> critical_;  ///< per entry of the trace the one that decided when it could start
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  bool has_transfers_ = false;
};

}  // namespace pipedream
