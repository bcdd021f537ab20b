#include "pipedream/profiler/memory_ledger.hpp"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <memory>
#include <unordered_map>

#include "pipedream/model/torch_versions.hpp"

namespace pipedream {
namespace {

// Listens to the allocator as torch's own profiler does.
class MemoryLedger final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* pointer, std::int64_t size, ReportedTotal, ReportedTotal, c10::Device) override {
    if (size > 0) alive_[pointer] = {size, layer_};
    else alive_.erase(pointer);
  }
  [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }

  void begin_layer(std::size_t layer) { layer_ = layer; }
  [[nodiscard]] std::vector<std::int64_t> alive_by_layer(std::size_t layers) const {
    std::vector<std::int64_t> bytes(layers, 0);
    for (const auto& [pointer, block] : alive_) bytes[block.layer] += block.size;
    return bytes;
  }

 private:
  struct Block {
    std::int64_t size;
    std::size_t layer;
  };
  std::unordered_map<void*, Block> alive_;
  std::size_t layer_ = 0;
};

}  // namespace

std::vector<LayerMemory> measure_memory(const Model& model, const Layers& layers, const Tensors& inputs, ForwardContext context) {
  context.update_buffers = false;
  std::vector<LayerMemory> result(layers.size());
  const auto ledger = std::make_shared<MemoryLedger>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, ledger);
  at::Tensor loss = run_layers(
      model, layers, inputs, context, [&](std::size_t layer) { ledger->begin_layer(layer); },
      [&](std::size_t layer, Tensors& outputs) {
        for (const at::Tensor& output : outputs) result[layer].output_bytes.push_back(static_cast<std::int64_t>(output.nbytes()));
      });
  const std::vector<std::int64_t> alive = ledger->alive_by_layer(layers.size());
  for (std::size_t i = 0; i < result.size(); ++i) result[i].stashed_bytes = alive[i];
  return result;
}

}  // namespace pipedream
