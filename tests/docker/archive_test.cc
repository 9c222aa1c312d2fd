// Files into and out of a container of a real Engine.
#include <stdexcept>

#include "lib/tar/tar_writer.h"
#include "tests/docker/engines.h"

namespace isogate::docker {
namespace {

TEST_F(SharedEngine, FilesArriveWithTheirModesAndOwners) {
  const std::string id = run();
  std::string big(3'000'003, '\0');
  for (size_t i = 0; i < big.size(); ++i) big[i] = static_cast<char>(i * 131 >> 5);
  const auto produce = [&](const ByteSink& sink) {
    TarWriter tar(sink);
    tar.directory({"tools", 0751, 0, 0, 1'600'000'000});
    tar.file({"tools/runner", 0555, 0, 0, 1'600'000'001}, big);
    tar.file({"tools/mine", 0640, 1000, 1000, 1'600'000'002}, "text\n");
    tar.file({"tools/" + std::string(150, 'n'), 0600, 70'000, 4'000'000, 0}, "long");
    tar.symlink({"tools/link", 0777, 1000, 1000, 0}, "mine");
    tar.finish();
  };
  engine_->put_archive(id, "/opt/..", produce, usual());
  const std::string out =
      exec(id, {"sh", "-c", "cd /tools; stat -c '%n %a %u:%g %Y' . runner mine n*; readlink link; cat link"});
  EXPECT_EQ(out, ". 751 0:0 1600000000\nrunner 555 0:0 1600000001\nmine 640 1000:1000 1600000002\n" +
                     std::string(150, 'n') + " 600 70000:4000000 0\nmine\ntext\n");
  EXPECT_TRUE(exec(id, {"cat", "/tools/runner"}) == big);

  std::string archive;
  engine_->get_archive(
      id, "/tools", [&](std::string_view piece) { archive += piece; }, usual());
  test::ProgramOptions options;
  options.stdin_bytes = archive;
  EXPECT_TRUE(test::run_program({"tar", "-xOf", "-", "tools/runner"}, options).out == big);
}

TEST_F(SharedEngine, ACreatedContainerTakesFilesToo) {
  const std::string id = create();
  const auto produce = [](const ByteSink& sink) {
    TarWriter tar(sink);
    tar.file({"greeting"}, "hello");
    tar.finish();
  };
  engine_->put_archive(id, "/", produce, usual());
  engine_->start(id, usual());
  EXPECT_EQ(exec(id, {"cat", "/greeting"}), "hello");
}

TEST_F(SharedEngine, AnArchiveThatBreaksOffIsNotTakenForWhole) {
  const std::string id = run();
  const auto produce = [](const ByteSink& sink) {
    TarWriter tar(sink);
    tar.begin_file({"tmp/half"}, 10'000'000);
    tar.bytes(std::string(5'000'000, 'x'));
    throw std::runtime_error("the source is gone");
  };
  EXPECT_THROW(engine_->put_archive(id, "/", produce, usual()), std::runtime_error);
  engine_->inspect(id, usual());
}

TEST_F(SharedEngine, ARefusalComesThroughWhileTheArchiveIsSent) {
  const std::string id = run();
  const auto produce = [](const ByteSink& sink) {
    TarWriter tar(sink);
    tar.begin_file({"large"}, 64'000'000);
    for (int i = 0; i < 64; ++i) tar.bytes(std::string(1'000'000, 'x'));
    tar.end_file();
    tar.finish();
  };
  const Failure nowhere = failure_of([&] { engine_->put_archive(id, "/nowhere", produce, usual()); });
  EXPECT_EQ(nowhere.status, ISOGATE_NOT_FOUND) << nowhere.message;
  EXPECT_EQ(failure_of([&] { engine_->put_archive("nobody", "/", produce, usual()); }).status,
            ISOGATE_NOT_FOUND);
  EXPECT_EQ(failure_of([&] {
              engine_->get_archive(
                  id, "/nothing", [](std::string_view) {}, usual());
            }).status,
            ISOGATE_NOT_FOUND);
}

}  // namespace
}  // namespace isogate::docker
