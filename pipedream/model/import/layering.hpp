#pragma once

#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "pipedream/model/import/aliases.hpp"
#include "pipedream/model/import/program.hpp"

/// Cuts a program into layers: what the planner may place apart.
namespace pipedream {

/// Which steps form a layer: those of one innermost torch.nn module ("leaf"), of one module `depth` levels below the model ("block:1"), or
/// every step alone ("node").
struct Granularity {
  enum class Kind { Leaf, Block, Node };
  Kind kind = Kind::Leaf;
  int depth = 1;
  bool operator==(const Granularity&) const = default;
};

/// "leaf", "block" (= "block:1"), "block:2", "node". @throws UsageError for anything else
[[nodiscard]] Granularity parse_granularity(const std::string& text);

/// The size of dimension `dimension` of `value` stands in for the result of step `step`, whose own tensor is not at hand in this layer.
struct SizeSource {
  int step = 0;
  int value = 0;
  int dimension = 0;
  bool operator==(const SizeSource&) const = default;
};

struct ProgramLayer {
  std::string name;                                 ///< unique: module path, "@1".. for later calls, "+add" for what a container does itself
  std::string type;                                 ///< class of the module, "torch.nn.modules.linear.Linear"
  std::vector<int> steps;                           ///< indices, ascending; sizes and constants are copied into each layer that needs them
  std::vector<int> inputs;                          ///< value ids made by other layers, or model inputs, in order of first use
  std::vector<int> outputs;                         ///< value ids read by others, in order of making
  std::vector<int> parameters, buffers, constants;  ///< value ids, in order of first use
  std::vector<int> changed_buffers;                 ///< those of `buffers` that a training forward changes
  std::vector<SizeSource> sizes;
  bool operator==(const ProgramLayer&) const = default;
};

struct LayeredProgram {
  Program program;                   ///< after replace_in_place and remove_unused
  std::vector<ProgramLayer> layers;  ///< every layer reads earlier ones and model inputs only
  std::vector<std::string> notes;    ///< what the user should know: layers joined because they change the same buffer

  /// Index of the layer that makes a value, -1 if none does.
  [[nodiscard]] int maker_of(int value) const;
};

/// Cuts a program. Steps that neither its outputs nor a changed buffer depend on are left out.
///
/// Rule: consecutive steps of the same call of the same module form a layer; a later step joins an earlier layer of that call if all it reads is made
/// in layers not after that one. Without module paths, steps go by the owner of their parameters; a step without any joins its producer if that
/// is one layer, else it starts a layer.
[[nodiscard]] LayeredProgram cut_into_layers(const Program& program, const Granularity& granularity);

std::ostream& operator<<(std::ostream& out, const LayeredProgram& layered);

}  // namespace pipedream
