// What a lost state directory leaves on an Engine, and deploy/docker-orphans.sh, which finds it.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/docker/gateways.h"
#include "tests_dirs.h"

namespace isogate::docker {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class Orphans : public OnEngine {
 protected:
  void SetUp() override {
    OnEngine::SetUp();
    if (IsSkipped()) return;
    if (test::run_program({"docker", "--version"}).exit_code != 0) GTEST_SKIP() << "no program docker here";
    fs::create_directories(state_.path() + "/sandboxes");
  }
  static std::string id_of(char letter) { return "isg-" + std::string(26, letter); }
  void claim(const std::string& id) { fs::create_directories(state_.path() + "/sandboxes/" + id); }
  Json labels(const std::string& sandbox, const std::string& instance) const {
    return labels_of({instance, "docker", sandbox}, "sandbox");
  }
  std::string container(const std::string& sandbox, const std::string& instance) {
    return create({{"Labels", labels(sandbox, instance)}});
  }
  std::string volume(const std::string& sandbox, const std::string& instance) const {
    const std::string name = new_name();
    engine_->create_volume(name, {{"Labels", labels(sandbox, instance)}}, usual());
    return name;
  }
  std::string network(const std::string& sandbox) const {
    return engine_->create_network(new_name(), {{"Labels", labels(sandbox, instance_)}, {"Internal", true}},
                                   usual());
  }
  test::ProgramResult script(std::vector<std::string> arguments) const {
    const std::vector<std::string> whole = {
        "env",        "DOCKER_HOST=" + std::string(std::getenv(variable_)),
        "bash",       ISOGATE_SOURCE_DIR "/deploy/docker-orphans.sh",
        arguments[0], "--instance",
        instance_,    "--state-dir",
        state_.path()};
    arguments.erase(arguments.begin());
    arguments.insert(arguments.begin(), whole.begin(), whole.end());
    return test::run_program(arguments);
  }

  test::TemporaryDirectory state_;
};

TEST_F(Orphans, AreWhatNoSandboxOfTheStateDirectoryClaims) {
  const std::string lost = container(id_of('a'), instance_), kept = container(id_of('b'), instance_);
  const std::string taken = container(id_of('c'), instance_), ready = container(id_of('d'), instance_);
  const std::string strange = container(id_of('a'), instance_ + "-other");
  const std::string lost_volume = volume(id_of('a'), instance_), runners = volume("-", instance_);
  const std::string lost_network = network(id_of('a'));
  claim(id_of('b'));
  claim(id_of('x'));
  std::ofstream(state_.path() + "/sandboxes/" + id_of('x') + "/made_as") << id_of('c');
  claim("ready.docker/" + id_of('d'));
  const auto listed = script({"ls"});
  EXPECT_EQ(listed.exit_code, 0) << listed.err;
  for (const std::string& one : {lost, lost_volume, lost_network}) EXPECT_THAT(listed.out, HasSubstr(one));
  for (const std::string& one : {kept, taken, ready, strange, runners})
    EXPECT_THAT(listed.out, Not(HasSubstr(one)));
  for (const std::vector<std::string>& unconfirmed :
       {std::vector<std::string>{"rm"}, {"rm", "--confirm", "other"}, {"rm", "--confirm", ""}})
    EXPECT_NE(script(unconfirmed).exit_code, 0);
  EXPECT_EQ(script({"ls"}).out, listed.out) << "nothing was removed";
  const auto removed = script({"rm", "--confirm", instance_});
  EXPECT_EQ(removed.exit_code, 0) << removed.err;
  EXPECT_EQ(script({"ls"}).out, "");
  for (const std::string& one : {kept, taken, ready, strange}) engine_->inspect(one, usual());
  engine_->inspect_volume(runners, usual());
}

TEST_F(Orphans, ThatRunStayUnlessTheyAreMeant) {
  const std::string runs = run({{"Labels", labels(id_of('a'), instance_)}});
  const std::string its = volume(id_of('a'), instance_);
  script({"rm", "--confirm", instance_});
  EXPECT_EQ(engine_->inspect(runs, usual()).at("State").at("Running"), true);
  engine_->inspect_volume(its, usual());
  EXPECT_EQ(script({"rm", "--confirm", instance_, "--running"}).exit_code, 0);
  EXPECT_EQ(script({"ls"}).out, "");
}

TEST_F(Orphans, AreNotToldByAStateDirectoryThatIsNotThere) {
  container(id_of('a'), instance_);
  fs::remove(state_.path() + "/sandboxes");
  const auto listed = script({"ls"});
  EXPECT_NE(listed.exit_code, 0);
  EXPECT_EQ(listed.out, "");
  EXPECT_THAT(listed.err, HasSubstr("state directory"));
}

}  // namespace
}  // namespace isogate::docker
