#include "pipedream/data/data_set.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "pipedream/core/error.hpp"
#include "pipedream/data/sources.hpp"

namespace pipedream {
namespace {

struct DataEntry {
  DataListing listing;
  sources::SourcePointer (*open)(NamedSpec&);
};

const std::vector<DataEntry>& data_entries() {
  static const std::vector<DataEntry> entries = {
      {{"fashion-mnist", "70,000 grey images of clothes, 28 x 28, 10 classes", "dir= train=60000 test=10000", false, ""},
       sources::open_fashion_mnist},
      {{"idx", "IDX files (plain or gz) of images and labels: idx:FOLDER or four files",
        "images= labels= test_images= test_labels= train= test=", true, "given by you"},
       sources::open_idx},
      {{"synthetic-images", "images made from class patterns and noise", "samples=8192 channels=1 size=28 classes=10 seed=0", true,
        "made on request"},
       sources::open_synthetic_images},
      {{"synthetic-tokens", "sequences in which most tokens follow from the one before", "samples=8192 vocabulary=64 seed=0", true,
        "made on request"},
       sources::open_synthetic_tokens},
      {{"synthetic", "random values for whatever a model file reads; nothing can be learned from them", "samples=8192 limit=2 seed=0", true,
        "made on request"},
       sources::open_synthetic_fields},
      {{"text", "a text file, its bytes as tokens: text:FILE", "file= test_share=0.1", true, "given by you"}, sources::open_text},
  };
  return entries;
}

}  // namespace

std::shared_ptr<const DataSource> open_data(const std::string& spec) {
  NamedSpec named(spec, "data set");
  std::vector<std::string> names;
  for (const DataEntry& entry : data_entries()) {
    names.push_back(entry.listing.name);
    if (entry.listing.name == named.name()) return entry.open(named);
  }
  throw UsageError(fmt::format("unknown data set '{}'", named.name()), fmt::format("known data sets: {}", fmt::join(names, ", ")));
}

std::vector<DataListing> list_data() {
  std::vector<DataListing> listings;
  for (const DataEntry& entry : data_entries()) listings.push_back(entry.listing);
  const std::string folder = sources::find_fashion_mnist();
  listings[0].found = !folder.empty();
  listings[0].where = listings[0].found ? folder : "not found: apt-get install dataset-fashion-mnist";
  return listings;
}

}  // namespace pipedream
