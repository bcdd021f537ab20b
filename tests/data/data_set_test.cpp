#include "pipedream/data/data_set.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "pipedream/core/error.hpp"
#include "pipedream/data/image_set.hpp"

namespace pipedream {
namespace {

using testing::HasSubstr;

std::vector<FieldSpec> image_fields(std::int64_t channels, std::int64_t size) {
  return {{"image", {channels, size, size}, at::kFloat}, {"target", {}, at::kLong}};
}
std::vector<FieldSpec> token_fields(std::int64_t length) { return {{"tokens", {length}, at::kLong}, {"target", {length}, at::kLong}}; }

// Two images of 2 channels, 2 x 2: pixel values 0, 10, 20, ... and labels 0, 1. Statistics 0 and 1 / 255: a normalised value is the byte.
ByteImages small_images(std::int64_t channels) {
  return {2,
          channels,
          2,
          2,
          [channels](std::int64_t index, std::uint8_t* pixels) {
            for (std::int64_t i = 0; i < 4 * channels; ++i) pixels[i] = static_cast<std::uint8_t>(10 * i + index);
          },
          [](std::int64_t index) { return index; }};
}
PixelStatistics bytes_as_they_are(std::int64_t channels) {
  return {std::vector<float>(static_cast<std::size_t>(channels), 0), std::vector<float>(static_cast<std::size_t>(channels), 1 / 255.0F)};
}
at::Tensor image_of(std::int64_t channels, std::int64_t wanted_channels, std::int64_t size) {
  const auto set = make_image_set(small_images(channels), bytes_as_they_are(channels), image_fields(wanted_channels, size), "small");
  return set->get({0}, {true, true})[0][0];
}

TEST(ImageSet, GivesImagesAndLabelsAsAsked) {
  const auto set = make_image_set(small_images(1), bytes_as_they_are(1), image_fields(1, 2), "small");
  EXPECT_EQ(set->size(), 2);
  const auto both = set->get({1, 0, 1}, {true, true});
  EXPECT_TRUE(at::allclose(both[0], at::tensor({1, 11, 21, 31, 0, 10, 20, 30, 1, 11, 21, 31}).to(at::kFloat).view({3, 1, 2, 2})));
  EXPECT_TRUE(at::equal(both[1], at::tensor({1, 0, 1}, at::kLong)));
  const auto labels = set->get({1}, {false, true});
  EXPECT_FALSE(labels[0].defined());
  EXPECT_TRUE(labels[1].defined());
}

TEST(ImageSet, PadsWithBlackAroundTheImage) {
  at::Tensor expected = at::zeros({1, 4, 4});
  expected.slice(1, 1, 3).slice(2, 1, 3).copy_(at::tensor({0, 10, 20, 30}).view({1, 2, 2}));
  EXPECT_TRUE(at::allclose(image_of(1, 1, 4), expected));
}

TEST(ImageSet, ResizesAsTorchDoes) {
  for (const std::int64_t size : {std::int64_t{1}, std::int64_t{13}, std::int64_t{40}}) {
    const at::Tensor expected = at::upsample_bilinear2d(image_of(2, 2, 2).unsqueeze(0), {size, size}, /*align_corners=*/false)[0];
    EXPECT_TRUE(at::allclose(image_of(2, 2, size), expected, 1e-4, 1e-3)) << size;
  }
}

TEST(ImageSet, RepeatsAndAveragesChannels) {
  const at::Tensor repeated = image_of(1, 3, 2);
  EXPECT_TRUE(at::equal(repeated[2], image_of(1, 1, 2)[0]));
  // Channels 0 .. 30 and 40 .. 70: mean 20 .. 50.
  EXPECT_TRUE(at::allclose(image_of(2, 1, 2), at::tensor({20, 30, 40, 50}).to(at::kFloat).view({1, 2, 2})));
  EXPECT_THROW(image_of(2, 3, 2), UsageError);
}

TEST(FashionMnist, HasItsPublishedFigures) {
  const auto listing = list_data();
  if (!listing[0].found) GTEST_SKIP() << "Fashion-MNIST is not on this machine";
  const auto source = open_data("fashion-mnist");
  EXPECT_EQ(source->info().classes, 10);
  EXPECT_EQ(source->info().sample_shape, (std::vector<std::int64_t>{1, 28, 28}));
  const auto train = source->split(Split::Train, image_fields(1, 28));
  EXPECT_EQ(train->size(), 60000);
  EXPECT_EQ(source->split(Split::Test, image_fields(1, 28))->size(), 10000);
  EXPECT_EQ(open_data("fashion-mnist:train=100,test=7")->split(Split::Test, image_fields(1, 28))->size(), 7);
  std::vector<std::int64_t> some(2000);
  for (std::size_t i = 0; i < some.size(); ++i) some[i] = static_cast<std::int64_t>(i) * 30;
  const auto batch = train->get(some, {true, true});
  // The published mean and deviation of the pixels are 0.2860 and 0.3530; normalised images have 0 and 1.
  EXPECT_NEAR(batch[0].mean().item<double>(), 0, 0.02);
  EXPECT_NEAR(batch[0].std().item<double>(), 1, 0.02);
  EXPECT_NEAR(batch[0].min().item<double>(), -0.2860 / 0.3530, 0.01);
  EXPECT_EQ(batch[1].min().item<std::int64_t>(), 0);
  EXPECT_EQ(batch[1].max().item<std::int64_t>(), 9);
}

TEST(SyntheticImages, TheLabelCanBeLearned) {
  const auto source = open_data("synthetic-images:samples=200,size=8,classes=4");
  const auto set = source->split(Split::Train, image_fields(1, 8));
  std::vector<std::int64_t> all(200);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  const auto batch = set->get(all, {true, true});
  EXPECT_TRUE(at::equal(batch[0], set->get(all, {true, false})[0]));
  const at::Tensor images = batch[0].flatten(1);
  // Nearest class mean, learned from the first 100, is right on the others.
  at::Tensor means = at::zeros({4, 64});
  for (std::int64_t c = 0; c < 4; ++c) means[c] = images.slice(0, 0, 100).index({batch[1].slice(0, 0, 100) == c}).mean(0);
  const at::Tensor guess = at::cdist(images.slice(0, 100), means).argmin(1);
  EXPECT_GT((guess == batch[1].slice(0, 100)).to(at::kFloat).mean().item<double>(), 0.95);
}

TEST(SyntheticTokens, MostTokensFollowFromTheOneBefore) {
  const auto set = open_data("synthetic-tokens:samples=64,vocabulary=16")->split(Split::Train, token_fields(32));
  const auto batch = set->get({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {true, true});
  EXPECT_TRUE(at::equal(batch[0].slice(1, 1), batch[1].slice(1, 0, 31)));  // the target is the next token
  at::Tensor counts = at::zeros({16, 16});
  for (std::int64_t i = 0; i < 320; ++i) counts[batch[0].flatten()[i].item<std::int64_t>()][batch[1].flatten()[i].item<std::int64_t>()] += 1;
  EXPECT_NEAR((std::get<0>(counts.max(1)).sum() / 320).item<double>(), 7.0 / 8 + 1.0 / 8 / 16, 0.08);
}

TEST(Text, CutsConsecutivePieces) {
  const auto file = std::filesystem::temp_directory_path() / ("pipedream-text-" + std::to_string(getpid()));
  std::ofstream(file) << "abcdefghijklmnopqrst";  // 20 bytes: 18 to train with (test_share 0.1), 2 to test
  const auto source = open_data("text:" + file.string());
  EXPECT_EQ(source->info().vocabulary, 256);
  const auto set = source->split(Split::Train, token_fields(4));
  EXPECT_EQ(set->size(), 4);  // (18 - 1) / 4
  const auto batch = set->get({0, 3}, {true, true});
  EXPECT_TRUE(at::equal(batch[0], at::tensor({'a', 'b', 'c', 'd', 'm', 'n', 'o', 'p'}, at::kLong).view({2, 4})));
  EXPECT_TRUE(at::equal(batch[1], at::tensor({'b', 'c', 'd', 'e', 'n', 'o', 'p', 'q'}, at::kLong).view({2, 4})));
  EXPECT_THROW((void)source->split(Split::Test, token_fields(4)), InputError);
  EXPECT_EQ(source->split(Split::Test, token_fields(1))->size(), 1);
  std::filesystem::remove(file);
}

std::string data_error(const std::string& spec, const std::vector<FieldSpec>& wanted = image_fields(1, 28)) {
  try {
    (void)open_data(spec)->split(Split::Train, wanted);
  } catch (const Error& error) {
    return std::string(error.what()) + " / " + error.hint();
  }
  return "no error";
}

TEST(OpenData, ErrorsSayWhatToDo) {
  EXPECT_THAT(data_error("cifar"), HasSubstr("known data sets: fashion-mnist, idx"));
  EXPECT_THAT(data_error("synthetic-images:colour=1"), HasSubstr("has no option 'colour'"));
  EXPECT_THAT(data_error("synthetic-images:size=0"), HasSubstr("an integer from 1"));
  EXPECT_THAT(data_error("text"), HasSubstr("write text:FILE"));
  EXPECT_THAT(data_error("text:/no/such/file"), HasSubstr("/no/such/file"));
  EXPECT_THAT(data_error("idx"), HasSubstr("write idx:FOLDER"));
  EXPECT_THAT(data_error("idx:/no/such/folder"), HasSubstr("is missing, with and without .gz"));
  EXPECT_THAT(data_error("fashion-mnist:dir=/no/such/folder"), HasSubstr("is missing"));
  EXPECT_THAT(data_error("synthetic-images", token_fields(3)), HasSubstr("'tokens'"));
  EXPECT_THAT(data_error("synthetic-tokens", image_fields(1, 28)), HasSubstr("it has: tokens, target"));
  EXPECT_THAT(data_error("synthetic-images", {{"image", {28, 28}, at::kFloat}}), HasSubstr("2 dimension(s)"));
  EXPECT_THAT(data_error("synthetic-tokens", {{"tokens", {3}, at::kLong}, {"target", {4}, at::kLong}}), HasSubstr("3 tokens and 4 targets"));
}

}  // namespace
}  // namespace pipedream
