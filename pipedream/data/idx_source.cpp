#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "pipedream/core/error.hpp"
#include "pipedream/data/idx.hpp"
#include "pipedream/data/image_set.hpp"
#include "pipedream/data/sources.hpp"

namespace pipedream::sources {
namespace {

namespace fs = std::filesystem;

struct IdxFiles {
  std::string images, labels;
};

// Images and labels that belong together, and how many of them are used.
struct LabelledImages {
  IdxArray images, labels;
  std::int64_t used = 0;
};

std::shared_ptr<const LabelledImages> load_labelled(const IdxFiles& files, std::int64_t limit) {
  auto result = std::make_shared<LabelledImages>(LabelledImages{load_idx(files.images, 3), load_idx(files.labels, 1), 0});
  const std::int64_t count = result->images.shape[0];
  if (result->labels.shape[0] != count)
    throw InputError(files.labels, fmt::format("holds {} labels for the {} images of {}", result->labels.shape[0], count, files.images),
                     "the two files do not belong together");
  result->used = std::min(count, limit);
  return result;
}

ByteImages byte_images(std::shared_ptr<const LabelledImages> held) {
  const std::vector<std::int64_t>& shape = held->images.shape;
  const std::int64_t pixels = shape[1] * shape[2];
  return {held->used,
          1,
          shape[1],
          shape[2],
          [held, pixels](std::int64_t index, std::uint8_t* to) { std::copy_n(held->images.values.data() + index * pixels, pixels, to); },
          [held](std::int64_t index) { return std::int64_t{held->labels.values[static_cast<std::size_t>(index)]}; }};
}

class IdxSource final : public DataSource {
 public:
  IdxSource(std::string name, const IdxFiles& train, const IdxFiles& test, std::int64_t train_limit, std::int64_t test_limit)
      : train_(load_labelled(train, train_limit)), test_(load_labelled(test, test_limit)), statistics_(pixel_statistics(byte_images(train_))) {
    const std::vector<std::int64_t>& shape = train_->images.shape;
    if (test_->images.shape[1] != shape[1] || test_->images.shape[2] != shape[2])
      throw InputError(test.images, fmt::format("has images of {} x {}, those to train with are {} x {}", test_->images.shape[1],
                                                test_->images.shape[2], shape[1], shape[2]));
    const std::uint8_t largest = std::max(*std::max_element(train_->labels.values.begin(), train_->labels.values.end()),
                                          *std::max_element(test_->labels.values.begin(), test_->labels.values.end()));
    info_ = {std::move(name), {1, shape[1], shape[2]}, std::max(2, largest + 1), 0, train_->used * shape[1] * shape[2]};
  }

  [[nodiscard]] const DataInfo& info() const override { return info_; }
  [[nodiscard]] std::shared_ptr<const DataSet> split(Split split, const std::vector<FieldSpec>& wanted) const override {
    return make_image_set(byte_images(split == Split::Train ? train_ : test_), statistics_, wanted, info_.name);
  }

 private:
  std::shared_ptr<const LabelledImages> train_, test_;
  PixelStatistics statistics_;
  DataInfo info_;
};

// The file as it is or with ".gz"; nothing if neither exists.
std::optional<std::string> plain_or_gz(const fs::path& path) {
  std::error_code error;
  if (fs::is_regular_file(path, error)) return path.string();
  if (fs::is_regular_file(path.string() + ".gz", error)) return path.string() + ".gz";
  return std::nullopt;
}

bool has_mnist_files(const fs::path& folder) { return plain_or_gz(folder / "train-images-idx3-ubyte").has_value(); }

std::string required(const fs::path& folder, const char* name) {
  if (const auto file = plain_or_gz(folder / name)) return *file;
  throw InputError((folder / name).string(), "is missing, with and without .gz",
                   "an IDX folder holds train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte");
}

SourcePointer open_folder(NamedSpec& spec, const fs::path& folder) {
  const std::int64_t train = spec.integer("train", INT64_MAX, 1, INT64_MAX), test = spec.integer("test", INT64_MAX, 1, INT64_MAX);
  spec.finish();
  return std::make_shared<IdxSource>(spec.name(), IdxFiles{required(folder, "train-images-idx3-ubyte"), required(folder, "train-labels-idx1-ubyte")},
                                     IdxFiles{required(folder, "t10k-images-idx3-ubyte"), required(folder, "t10k-labels-idx1-ubyte")}, train, test);
}

}  // namespace

std::string find_fashion_mnist() {
  std::vector<fs::path> folders;
  if (const char* root = std::getenv("PIPEDREAM_DATA")) folders.insert(folders.end(), {fs::path(root) / "fashion-mnist", root});
  folders.insert(folders.end(), {"data/fashion-mnist", "/usr/share/datasets/fashion-mnist"});
  const auto it = std::find_if(folders.begin(), folders.end(), has_mnist_files);
  return it == folders.end() ? "" : it->string();
}

SourcePointer open_fashion_mnist(NamedSpec& spec) {
  const std::string folder = spec.text("dir", find_fashion_mnist());
  if (folder.empty())
    throw InputError("fashion-mnist", "is not on this machine",
                     "apt-get install dataset-fashion-mnist, or put its four files into data/fashion-mnist or a folder named by PIPEDREAM_DATA");
  return open_folder(spec, folder);
}

SourcePointer open_idx(NamedSpec& spec) {
  const std::string folder = spec.text("", spec.text("dir", ""));
  if (!folder.empty()) return open_folder(spec, folder);
  const IdxFiles train{spec.text("images", ""), spec.text("labels", "")};
  if (train.images.empty() || train.labels.empty())
    throw UsageError("data set 'idx' needs files", "write idx:FOLDER or idx:images=FILE,labels=FILE,test_images=FILE,test_labels=FILE");
  // Without files of their own the tests are done on the images trained with.
  const IdxFiles test{spec.text("test_images", train.images), spec.text("test_labels", train.labels)};
  const std::int64_t train_limit = spec.integer("train", INT64_MAX, 1, INT64_MAX), test_limit = spec.integer("test", INT64_MAX, 1, INT64_MAX);
  spec.finish();
  return std::make_shared<IdxSource>(spec.name(), train, test, train_limit, test_limit);
}

}  // namespace pipedream::sources
