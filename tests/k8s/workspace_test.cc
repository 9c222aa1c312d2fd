// A configuration with another place for workspaces than where a sandbox has its files.
#include "tests/k8s/on_cluster.h"

namespace isogate::k8s {
namespace {

using test::Answer;
using test::Caller;
using test::eventually;
using test::Gateway;
using testing::HasSubstr;
using testing::Not;

class K8sWorkspace : public OnCluster {
 protected:
  static constexpr const char* kEmptyDir = "workspace: empty_dir";

  // It says why and what to do, without losing the files.
  static void expect_refused(const Answer& answer, const std::string& configured,
                             const std::string& recorded) {
    EXPECT_TRUE(refused(answer, 501, "unsupported"));
    EXPECT_THAT(answer.text, HasSubstr("the configuration demands workspace: " + configured));
    EXPECT_THAT(answer.text, HasSubstr("Write workspace: " + recorded + " again"));
    EXPECT_THAT(answer.text, HasSubstr("purge=true"));
    EXPECT_THAT(answer.text, Not(HasSubstr("is gone")));
  }
  static std::string end(const Caller& caller, const char* query = "") {
    const Answer answer = caller.call("DELETE", "/sandboxes/a" + std::string(query));
    EXPECT_TRUE(succeeded(answer));
    return answer.text;
  }
};

TEST_F(K8sWorkspace, OnAClaimItOutlivesAConfigurationOfEmptyDirsAndADelete) {
  auto first = std::make_unique<Gateway>(options());
  ASSERT_TRUE(succeeded(Caller(*first, "a").write("file", "kept")));
  first->stop();
  const std::string claim = uid_of(all("persistentvolumeclaims").at(0));
  auto other = std::make_unique<Gateway>(after(*first, options(kEmptyDir)));
  const Caller there(*other, "a");
  expect_refused(there.exec("true"), "empty_dir", "claim");
  expect_refused(there.read("file"), "empty_dir", "claim");
  end(there);
  expect_refused(there.exec("true"), "empty_dir", "claim");
  other->stop();
  ASSERT_EQ(all("persistentvolumeclaims").size(), 1u);
  EXPECT_EQ(uid_of(all("persistentvolumeclaims").at(0)), claim);
  Gateway back(after(*first, options()));
  EXPECT_EQ(Caller(back, "a").content("file"), "kept");
}

TEST_F(K8sWorkspace, OnAClaimItOutlivesThePodThatAKilledGatewayLeft) {
  auto first = std::make_unique<Gateway>(options());
  ASSERT_TRUE(succeeded(Caller(*first, "a").write("file", "kept")));
  first->kill();
  auto other = std::make_unique<Gateway>(after(*first, options(kEmptyDir)));
  expect_refused(Caller(*other, "a").exec("true"), "empty_dir", "claim");
  EXPECT_TRUE(eventually(kGone, [&] { return all("pods").empty(); })) << "its programs keep running";
  expect_refused(Caller(*other, "a").exec("true"), "empty_dir", "claim");
  other->stop();
  Gateway back(after(*first, options()));
  EXPECT_EQ(Caller(back, "a").content("file"), "kept");
}

TEST_F(K8sWorkspace, OnAClaimItIsRemovedByAPurgeWhateverIsConfigured) {
  auto first = std::make_unique<Gateway>(options());
  ASSERT_TRUE(succeeded(Caller(*first, "a").write("file", "x")));
  first->stop();
  Gateway other(after(*first, options(kEmptyDir)));
  expect_refused(Caller(other, "a").exec("true"), "empty_dir", "claim");
  end(Caller(other, "a"), "?purge=true");
  EXPECT_TRUE(eventually(kGone, [&] { return all("persistentvolumeclaims").empty(); }));
  EXPECT_EQ(Caller(other, "a").out("ls -A; echo fresh"), "fresh\n");
}

TEST_F(K8sWorkspace, OnAClaimThatIsGoneItIsLostWhateverIsConfigured) {
  auto first = std::make_unique<Gateway>(options());
  ASSERT_TRUE(succeeded(Caller(*first, "a").write("file", "x")));
  first->stop();
  ASSERT_TRUE(eventually(kGone, [&] { return all("pods").empty(); }));
  remove("persistentvolumeclaims", name_of(all("persistentvolumeclaims").at(0)));
  Gateway other(after(*first, options(kEmptyDir)));
  EXPECT_TRUE(refused(Caller(other, "a").exec("true"), 410, "sandbox_lost"));
  end(Caller(other, "a"));
  EXPECT_EQ(Caller(other, "a").out("ls -A; echo fresh"), "fresh\n");
}

TEST_F(K8sWorkspace, InAPodThatRunsItOutlivesAConfigurationOfClaims) {
  const std::string keep = "on_shutdown: keep";
  auto first = std::make_unique<Gateway>(options(kEmptyDir, keep));
  ASSERT_TRUE(succeeded(Caller(*first, "a").write("file", "kept")));
  first->stop();
  const std::string uid = uid_of(pod());
  auto other = std::make_unique<Gateway>(after(*first, options("", keep)));
  expect_refused(Caller(*other, "a").exec("true"), "claim", "empty_dir");
  EXPECT_EQ(uid_of(pod()), uid);
  other->stop();
  Gateway back(after(*first, options(kEmptyDir, keep)));
  EXPECT_EQ(Caller(back, "a").content("file"), "kept");
}

TEST_F(K8sWorkspace, InAPodThatIsGoneItIsLostWhateverIsConfigured) {
  const std::string keep = "on_shutdown: keep";
  auto first = std::make_unique<Gateway>(options(kEmptyDir, keep));
  ASSERT_TRUE(succeeded(Caller(*first, "a").write("file", "x")));
  first->stop();
  remove("pods", name_of(pod()));
  Gateway other(after(*first, options()));
  EXPECT_TRUE(refused(Caller(other, "a").exec("true"), 410, "sandbox_lost"));
  EXPECT_TRUE(all("persistentvolumeclaims").empty()) << "no empty one in its place";
  end(Caller(other, "a"));
  EXPECT_EQ(Caller(other, "a").out("ls -A; echo fresh"), "fresh\n");
}

}  // namespace
}  // namespace isogate::k8s
