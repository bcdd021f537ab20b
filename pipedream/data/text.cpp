#include <fmt/format.h>

#include <algorithm>

#include "pipedream/core/error.hpp"
#include "pipedream/core/file.hpp"
#include "pipedream/data/sources.hpp"
#include "pipedream/data/token_set.hpp"

namespace pipedream::sources {
namespace {

// The bytes of a file as tokens. Samples are consecutive, not overlapping pieces; the tests use the end of the file.
class TextSource final : public DataSource {
 public:
  TextSource(const std::string& file, double test_share) : text_(std::make_shared<const std::string>(read_file(file))) {
    if (text_->size() < 4) throw InputError(file, fmt::format("holds {} bytes, too few to learn from", text_->size()));
    train_end_ = std::max<std::int64_t>(2, static_cast<std::int64_t>(static_cast<double>(text_->size()) * (1 - test_share)));
    info_ = {"text", {}, 0, 256, train_end_};
    file_ = file;
  }

  [[nodiscard]] const DataInfo& info() const override { return info_; }
  [[nodiscard]] std::shared_ptr<const DataSet> split(Split split, const std::vector<FieldSpec>& wanted) const override {
    const std::int64_t begin = split == Split::Train ? 0 : train_end_;
    const std::int64_t end = split == Split::Train ? train_end_ : static_cast<std::int64_t>(text_->size());
    const auto count = [begin, end](std::int64_t length) { return (end - begin - 1) / std::max<std::int64_t>(length, 1); };
    const auto read = [text = text_, begin](std::int64_t index, std::int64_t length, std::int64_t* tokens) {
      const char* from = text->data() + begin + index * length;
      std::transform(from, from + length + 1, tokens, [](char byte) { return std::int64_t{static_cast<unsigned char>(byte)}; });
    };
    return make_token_set({count, read}, wanted, file_);
  }

 private:
  std::shared_ptr<const std::string> text_;
  std::int64_t train_end_ = 0;
  std::string file_;
  DataInfo info_;
};

}  // namespace

SourcePointer open_text(NamedSpec& spec) {
  const std::string file = spec.text("", spec.text("file", ""));
  if (file.empty()) throw UsageError("data set 'text' needs a file", "write text:FILE");
  const double share = spec.number("test_share", 0.1, 0.001, 0.9);
  spec.finish();
  return std::make_shared<TextSource>(file, share);
}

}  // namespace pipedream::sources
