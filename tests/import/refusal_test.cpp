#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fixtures.hpp"
#include "pipedream/core/error.hpp"
#include "pipedream/core/file.hpp"
#include "pipedream/model/import/import_model.hpp"

namespace pipedream {
namespace {

std::string without_machine(std::string text) {
  const std::string folder = testing::fixture("");
  for (std::size_t at = 0; (at = text.find(folder)) != std::string::npos;) text.erase(at, folder.size());
  const std::string version = "libtorch ";
  if (const std::size_t at = text.find(version); at != std::string::npos)
    text.erase(at + version.size(), text.find(' ', at + version.size()) - at - version.size() + 1);
  return text;
}

/// What the user reads: the message and the hint.
std::string refusal_of(const std::string& name) {
  try {
    (void)import_model(testing::fixture(name));
  } catch (const Error& error) {
    return without_machine(std::string(error.what()) + "\n  hint: " + error.hint() + "\n  exit " +
                           std::to_string(static_cast<int>(error.exit_code())) + "\n");
  }
  return name + ": accepted\n";
}

/// One file per reason. tests/import/refusals.txt holds the texts as people read them; on a wanted change copy the new text from the failure.
TEST(Refusals, SayWhatIsWrongWhereAndWhatToDo) {
  std::string text;
  for (const char* name : {"refused_cond.pt2",
                           "refused_autocast.pt2",
                           "no_grad.pt2",
                           "refused_item.pt2",
                           "refused_custom.pt2",
                           "refused_unknown_operator.pt2",
                           "refused_object.pt2",
                           "refused_pickled.pt2",
                           "refused_decomposed.pt2",
                           "refused_mutation.pt2",
                           "refused_schema.pt2",
                           "refused_variant.pt2",
                           "refused_batch_second.pt2",
                           "refused_two_models.pt2",
                           "refused_aborted.pt2",
                           "refused_older.pt2",
                           "refused_state_dict.pt",
                           "cnn_eval.pt2",
                           "mlp.safetensors",
                           "absent.pt2"}) {
    text += std::string("== ") + name + "\n" + refusal_of(name);
  }
  const std::string expected = read_file(std::string(PIPEDREAM_SOURCE_DIR) + "/tests/import/refusals.txt");
  EXPECT_EQ(text, expected);
}

TEST(Refusals, ADamagedFileIsNeverImportedSilently) {
  const std::string bytes = testing::read_fixture("mlp.pt2");
  const std::string path = ::testing::TempDir() + "/pipedream_damaged.pt2";
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    write_file(path, testing::mutate(bytes, seed, 2));
    try {
      EXPECT_EQ(import_model(path).nodes.size(), 8U);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::InputError) << error.what();
    }
  }
}

TEST(Refusals, NormalisationCalledTwiceBecomesOneLayer) {
  const Model model = import_model(testing::fixture("refused_shared_statistics.pt2"));
  ASSERT_EQ(model.nodes.size(), 3U);  // "a", all from the first to the second use of "bn", loss
  EXPECT_EQ(model.nodes[0].name, "a");
}

}  // namespace
}  // namespace pipedream
