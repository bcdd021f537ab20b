#include "pipedream/model/import/pt2_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "pipedream/core/error.hpp"
#include "pipedream/model/import/pt2_json.hpp"

namespace pipedream {
namespace {

constexpr const char* kOneLine = "export it with torch >= 2.9: torch.export.save(torch.export.export(model.train(), (x,)), \"m.pt2\")";
constexpr std::int64_t kLargestTensor = std::int64_t{1} << 46;  // elements; keeps every product below within 64 bits

/// The entries of an archive under the folder that all of them lie in. It is the name the file had when it was saved.
class Folder {
 public:
  explicit Folder(const ZipArchive& archive) : archive_(archive) {
    for (const ZipEntry& entry : archive.entries()) {
      const std::size_t slash = entry.name.find('/');
      const std::string root = slash == std::string::npos ? "" : entry.name.substr(0, slash + 1);
      if (root_.empty()) root_ = root;
      if (root.empty() || root != root_) one_root_ = false;
    }
  }

  [[nodiscard]] const ZipEntry* find(const std::string& name) const { return archive_.find(root_ + name); }
  [[nodiscard]] ZipData read(const std::string& name) const {
    const ZipEntry* entry = find(name);
    if (entry == nullptr) throw InputError(archive_.name(), fmt::format("the archive has no entry {}", name), "the file is damaged: save it again");
    return archive_.read(*entry);
  }
  [[nodiscard]] std::string text(const std::string& name) const {
    std::string result(read(name).bytes);
    while (!result.empty() && (result.back() == '\n' || result.back() == ' ')) result.pop_back();
    return result;
  }
  /// Names X of all entries prefix + X + suffix.
  [[nodiscard]] std::vector<std::string> names(const std::string& prefix, const std::string& suffix) const {
    std::vector<std::string> result;
    for (const ZipEntry& entry : archive_.entries()) {
      const std::string start = root_ + prefix;
      if (!entry.name.starts_with(start) || !entry.name.ends_with(suffix) || entry.name.size() < start.size() + suffix.size()) continue;
      result.push_back(entry.name.substr(start.size(), entry.name.size() - start.size() - suffix.size()));
    }
    return result;
  }
  [[nodiscard]] bool one_root() const { return one_root_; }
  [[nodiscard]] const std::string& file() const { return archive_.name(); }
  [[nodiscard]] const ZipArchive& archive() const { return archive_; }

 private:
  const ZipArchive& archive_;
  std::string root_;
  bool one_root_ = true;
};

/// Says what a zip archive is that is no .pt2 archive of today.
[[noreturn]] void refuse_archive(const Folder& folder) {
  const auto has = [&](const char* name) { return folder.archive().find(name) != nullptr || folder.find(name) != nullptr; };
  if (has("serialized_exported_program.json")) {
    throw InputError(folder.file(), "this exported program was saved by an older torch",
                     "load it with torch >= 2.9 (torch.export.load) and save it again");
  }
  if (has("constants.pkl") && has("data.pkl")) {
    throw InputError(folder.file(), "this is a TorchScript file", kOneLine);
  }
  if (has("data.pkl")) {
    throw InputError(folder.file(), "this file of torch.save holds weights or pickled Python objects, not a program", kOneLine);
  }
  throw InputError(folder.file(), "this zip archive is no exported PyTorch program", kOneLine);
}

std::string choose_model(const Folder& folder, const Pt2Options& options) {
  const std::vector<std::string> names = folder.names("models/", ".json");
  if (names.empty()) {
    throw InputError(folder.file(), "the archive holds no model: torch.export.save did not finish when it was written",
                     "look at the error it gave (outputs that are named tuples or classes are a common reason: return a tensor or a tuple)");
  }
  if (!options.model.empty()) {
    if (std::find(names.begin(), names.end(), options.model) != names.end()) return options.model;
    throw InputError(folder.file(), fmt::format("the archive holds no model \"{}\"", options.model),
                     fmt::format("it holds: {}", fmt::join(names, ", ")));
  }
  if (names.size() > 1) {
    throw InputError(folder.file(), fmt::format("the archive holds {} models: {}", names.size(), fmt::join(names, ", ")),
                     fmt::format("name one: --model {}:model={}", folder.file(), names.front()));
  }
  return names.front();
}

/// Strides and sizes whose products cannot overflow.
void check_extent(const JsonView& view, const StoredTensor& tensor) {
  std::int64_t elements = 1, reach = 1;
  for (std::size_t i = 0; i < tensor.sizes.size(); ++i) {
    const std::int64_t size = tensor.sizes[i], stride = tensor.strides[i];
    if (size > kLargestTensor || stride > kLargestTensor || (size > 0 && elements > kLargestTensor / size)) view.fail("the tensor is too large");
    elements *= size;
    if (size > 1 && stride > 0 && (size - 1) > (kLargestTensor - reach) / stride) view.fail("the tensor is too large");
    if (size > 1) reach += (size - 1) * stride;
  }
  if (tensor.offset > kLargestTensor) view.fail("the tensor is too large");
}

StoredTensor stored_tensor_of(const JsonView& view, const std::string& name, const std::string& folder) {
  StoredTensor tensor;
  tensor.name = name;
  const std::string path = view.at("path_name").string();
  if (view.find("use_pickle") && view.at("use_pickle").boolean()) {
    view.fail(fmt::format("the tensor {} is pickled (a quantised or other special tensor)", name), "export the model with plain float weights");
  }
  tensor.storage = folder + path;
  tensor.is_parameter = view.find("is_param") && view.at("is_param").boolean();
  const JsonView meta = view.at("tensor_meta");
  tensor.element = element_of_code(meta.at("dtype").integer());
  if (tensor.element == ElementType::Unknown) meta.at("dtype").fail("the element type is not known");
  tensor.requires_grad = meta.at("requires_grad").boolean();
  for (const JsonView& size : meta.at("sizes").elements()) tensor.sizes.push_back(variant_of(size).second.integer(0));
  for (const JsonView& stride : meta.at("strides").elements()) tensor.strides.push_back(variant_of(stride).second.integer(0));
  if (tensor.sizes.size() != tensor.strides.size() || tensor.sizes.size() > 64) meta.fail("sizes and strides do not go together");
  tensor.offset = variant_of(meta.at("storage_offset")).second.integer(0);
  check_extent(meta, tensor);
  return tensor;
}

std::vector<StoredTensor> read_table(const Folder& folder, const std::string& directory, const std::string& name) {
  const std::string place = folder.file() + "/" + name;
  if (folder.find(name) == nullptr) return {};
  const ZipData data = folder.read(name);
  const Json json = parse_json(data.bytes, place);
  const JsonView config = JsonView(json, place).at("config");
  if (!config.json().is_object()) config.fail("an object is expected");
  std::vector<StoredTensor> result;
  for (const auto& item : config.json().items()) {
    // Python objects among the constants are refused where they are used.
    const JsonView view = config.at(item.key());
    if (view.find("tensor_meta")) result.push_back(stored_tensor_of(view, item.key(), directory));
  }
  return result;
}

/// Reads every storage once. An archive saved from the meta device has empty ones.
void read_storages(const Folder& folder, Pt2File& file) {
  std::size_t with_values = 0;
  for (const auto* tensors : {&file.weights, &file.constants}) {
    for (const StoredTensor& tensor : *tensors) {
      const auto [at, is_new] = file.storages.try_emplace(tensor.storage);
      if (is_new) at->second = folder.read(tensor.storage);
      const std::uint64_t bytes = at->second.bytes.size(),
                          needed = static_cast<std::uint64_t>(tensor.reach()) * static_cast<std::uint64_t>(element_bytes(tensor.element));
      if (bytes > 0 || needed == 0) with_values += needed > 0 ? 1 : 0;
      if (bytes > 0 && needed > bytes) {
        throw InputError(folder.file(), fmt::format("{} needs {} bytes, its storage {} has {}", tensor.name, needed, tensor.storage, bytes),
                         "the file is damaged: save it again");
      }
    }
  }
  file.has_values = with_values > 0 || file.weights.empty();
}

void require_signature_tensors(const Folder& folder, const Pt2File& file) {
  std::set<std::string> names;
  for (const auto* tensors : {&file.weights, &file.constants}) {
    for (const StoredTensor& tensor : *tensors) names.insert(tensor.name);
  }
  for (const auto* tensors : {&file.program.parameters, &file.program.buffers, &file.program.constants}) {
    for (const ProgramTensor& tensor : *tensors) {
      if (!names.contains(tensor.name))
        throw InputError(folder.file(), fmt::format("the file has no values for {}", tensor.name), "the file is damaged: save it again");
    }
  }
}

}  // namespace

std::int64_t StoredTensor::elements() const {
  std::int64_t result = 1;
  for (const std::int64_t size : sizes) result *= size;
  return result;
}

std::int64_t StoredTensor::reach() const {
  std::int64_t result = offset + 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return 0;
    result += (sizes[i] - 1) * strides[i];
  }
  return result;
}

Pt2File read_pt2(const std::shared_ptr<const MappedFile>& mapped, const Pt2Options& options) {
  if (!looks_like_zip(mapped->bytes())) throw InputError(mapped->name(), "this is no PyTorch file: a zip archive is expected", kOneLine);
  const ZipArchive archive(mapped);
  const Folder folder(archive);
  if (!folder.one_root() || folder.find("archive_format") == nullptr || folder.text("archive_format") != "pt2") refuse_archive(folder);
  if (const std::string version = folder.text("archive_version"); version != "0") {
    throw InputError(folder.file(), fmt::format("the archive has the version {}; version 0 is read", version), kOneLine);
  }
  if (folder.find("byteorder") != nullptr && folder.text("byteorder") != "little") {
    throw InputError(folder.file(), "the weights are in big-endian order", "save the file on a little-endian machine");
  }
  const std::string model = choose_model(folder, options);
  Pt2File file;
  {
    const ZipData json = folder.read("models/" + model + ".json");
    file.program = program_from_json(json.bytes, fmt::format("{}/models/{}.json", folder.file(), model));
  }
  file.weights = read_table(folder, "data/weights/", "data/weights/" + model + "_weights_config.json");
  file.constants = read_table(folder, "data/constants/", "data/constants/" + model + "_constants_config.json");
  read_storages(folder, file);
  require_signature_tensors(folder, file);
  return file;
}

}  // namespace pipedream
