#include "pipedream/schedule/csv.hpp"

#include <gtest/gtest.h>

#include "pipedream/core/error.hpp"
#include "pipedream/schedule/validate.hpp"
#include "tests/schedule/requests.hpp"

namespace pipedream {
namespace {

TEST(Csv, ReadsPyTorchFilesWithComputationsOnly) {
  // As _dump_csv writes them: rows per rank, empty cells where a rank idles.
  const Schedule schedule = schedule_from_csv("0F0,0F1,,0B0,,0B1\r\n,1F0,1B0,1F1,1B1,\r\n", "file.csv");
  EXPECT_EQ(schedule.micro_batches, 2);
  EXPECT_EQ(schedule.chunk_ranks, (std::vector<std::vector<int>>{{0}, {1}}));
  EXPECT_NO_THROW(validate(schedule));
}
TEST(Csv, ReadsPyTorchFilesWithCommunicationShardingAndOverlap) {
  const std::string text =
      "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD,0RESHARD\n"
      "1UNSHARD,1RECV_F0,1F0,1RECV_F1,(1F1;1B0)OVERLAP_F_B,1SEND_B0,1I1,1SEND_B1,1W1,1REDUCE_GRAD\n";
  const Schedule schedule = schedule_from_csv(text, "file.csv");
  EXPECT_NO_THROW(validate(schedule));
  EXPECT_TRUE(schedule.ranks[1].prologue[3].joined);
  EXPECT_EQ(schedule_to_csv(schedule, CsvForm::Torch).substr(0, 44), "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV");
  EXPECT_NE(schedule_to_csv(schedule, CsvForm::Torch).find("(1F1;1B0)OVERLAP_F_B"), std::string::npos);
}
TEST(Csv, PyTorchFormsRoundTrip) {
  EXPECT_TRUE(rc::check([] {
    const std::string name = *rc::gen::elementOf(std::vector<std::string>{"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "dualpipe-v", "looped-bfs"});
    ScheduleRequest request = any_request(name);
    for (auto& ranks : request.chunk_ranks) ranks.resize(1);
    request.slices = 1;
    const int ranks = static_cast<int>(request.chunk_ranks.size());
    request.chunk_ranks = place_chunks(find_schedule(name).placement, find_schedule(name).chunks_per_rank, std::vector<int>(static_cast<std::size_t>(std::min(4, ranks)), 1));
    request.step_micro_batches = std::max(request.step_micro_batches, 8);
    request.micro_batches = request.step_micro_batches;
    const Schedule schedule = make_schedule(request);
    for (const CsvForm form : {CsvForm::Torch, CsvForm::Compute}) {
      const std::string text = schedule_to_csv(schedule, form);
      const Schedule read = schedule_from_csv(text, "s.csv");
      RC_ASSERT(schedule_to_csv(read, form) == text);
      validate(read);
    }
  }));
}
TEST(Csv, HostileFilesGiveAClearError) {
  const std::string facts = "# pipedream.schedule/1\n# name x\n# policy flush\n";
  std::string wide = "0F0";
  for (int i = 0; i < 1'000'000; ++i) wide += ",0Q1";
  for (const std::string& text : {std::string(), std::string("\n"), wide, std::string("0F0,1G0\n"), std::string("0F-1\n"), std::string("-3F0\n"), std::string("0F0,0B"), std::string("(0F0;0B0"),
                                  std::string("(0F0;0B0)X"), std::string("1000000000F0\n"), std::string("0F1000000000\n"), std::string("0F0,0SEND_F0\n"), facts + "0F0\n",
                                  facts + "# chunks 0\n# edges\n# micro-batches 1000000000\n0F0v0\n", facts + "# chunks 0\n# edges 0>0\n# micro-batches 1\n0F0,0B0\n", facts + "# surprise 1\n",
                                  facts + "# chunks 0 0\n# edges 0>1 1>0\n# micro-batches 1\n0F0,1F0,1B0,0B0\n", facts + "# chunks 0\n# micro-batches 1\n# body 100000000 1 1\n[,0F0,]\n", std::string("\0\x01\xff", 3),
                                  std::string("# other/2\n0F0")}) {
    try {
      validate(schedule_from_csv(text, "file.csv"));
      ADD_FAILURE() << "accepted: " << text.substr(0, 60);
    } catch (const InputError& error) {
      EXPECT_LT(std::string(error.what()).size(), 3000U);
    }
  }
}
TEST(Csv, ErrorsNameLineAndCell) {
  try {
    static_cast<void>(schedule_from_csv("0F0,0B0\n1F0,1Z0\n", "file.csv"));
    FAIL();
  } catch (const InputError& error) {
    EXPECT_EQ(std::string(error.what()).substr(0, 20), "file.csv:2, cell 2: ");
  }
}

}  // namespace
}  // namespace pipedream
