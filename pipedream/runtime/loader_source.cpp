#include "pipedream/runtime/loader_source.hpp"

#include <algorithm>

#include "pipedream/data/loader.hpp"

namespace pipedream {
namespace {

class LoaderSource final : public MicroBatchSource {
 public:
  LoaderSource(std::shared_ptr<const DataSet> data, LoaderOptions options, int epoch) : loader_(std::move(data), std::move(options)), epoch_(epoch) {}
  [[nodiscard]] int num_micro_batches() const override { return static_cast<int>(loader_.micro_batches()); }
  [[nodiscard]] std::int64_t rows(int micro_batch) const override { return loader_.rows(micro_batch); }
  [[nodiscard]] MicroBatchData get(int micro_batch, bool /*with_tensors*/) override {
    MicroBatch found = loader_.get(epoch_, micro_batch);
    return {std::move(found.tensors), std::move(found.samples)};
  }

 private:
  Loader loader_;
  int epoch_;
};

}  // namespace

std::vector<FieldSpec> fields_of(const Model& model) {
  std::vector<FieldSpec> fields;
  for (const auto& input : model.inputs) fields.push_back({input.name, input.shape, input.dtype});
  return fields;
}

SourceFactory loader_sources(std::shared_ptr<const DataSet> train, std::shared_ptr<const DataSet> test, std::int64_t micro_batch,
                             std::uint64_t seed) {
  return [=](const SourceRequest& request) -> std::unique_ptr<MicroBatchSource> {
    const auto& data = request.training ? train : test;
    if (!data) return nullptr;
    LoaderOptions options;
    options.micro_batch = micro_batch;
    options.seed = seed;
    options.shuffle = request.training;
    options.wanted = request.wanted.empty() ? std::vector<bool>(data->fields().size(), false) : request.wanted;
    options.stride = request.stride;
    // Nothing to prefetch where no tensor is read.
    if (std::find(options.wanted.begin(), options.wanted.end(), true) == options.wanted.end()) options.prefetch = 0;
    return std::make_unique<LoaderSource>(data, options, request.training ? request.epoch : 0);
  };
}

}  // namespace pipedream
