#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <regex>

#include "tests/namespace/boxes.h"
#include "tests/support/program.h"

// The operator's own root file system in place of this host's.
namespace isogate::test {
namespace {

class Root : public testing::Test {
 protected:
  // A shell and a few tools with their libraries, and an /etc that shows its origin.
  void SetUp() override {
    if (!namespace_obstacle().empty()) GTEST_SKIP() << namespace_obstacle();
    ASSERT_EQ(::chmod(path().c_str(), 0755), 0);
    run("mkdir -p usr/bin usr/lib usr/lib64 etc opt/tool var/lib/thing && ln -s usr/bin bin && ln -s usr/lib "
        "lib && "
        "ln -s usr/lib64 lib64");
    for (const char* tool : {"bash", "cat", "id", "ls", "readlink", "stat", "touch", "true"})
      run(std::string("for f in /usr/bin/") + tool + " $(ldd /usr/bin/" + tool +
          " | grep -o '/[^ ]*'); do r=$(readlink -f $f); mkdir -p .$(dirname $r) && cp $r .$r; "
          "n=.$(readlink -f $(dirname $f))/$(basename $f); mkdir -p $(dirname $n); [ -e $n ] || cp $r $n; "
          "done");
    run("echo 'ID=own-root' > etc/os-release; echo 'hidden' > etc/hidden; chmod 600 etc/hidden; "
        "echo 'root:x:0:0:image:/:/bin/sh' > etc/passwd; echo of-the-tool > opt/tool/f; echo lib > "
        "var/lib/thing/f");
  }
  void run(const std::string& command) const {
    const auto done = run_program({"bash", "-c", "cd " + path() + " && " + command});
    ASSERT_EQ(done.exit_code, 0) << command << done.err;
  }
  [[nodiscard]] const std::string& path() const { return directory_.path(); }
  [[nodiscard]] std::string yaml(const std::string& more = "") const {
    return "backends:\n  - name: namespace\n    config: {root: " + path() + "}\n" + more;
  }
  // Why the backend is unavailable.
  [[nodiscard]] std::string refusal(const std::string& text) const {
    GatewayOptions options;
    options.yaml = text;
    options.wait_ready = false;
    try {
      Gateway own(options);
      ADD_FAILURE() << "it started";
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  }

 private:
  TemporaryDirectory directory_{"/opt"};
};

TEST_F(Root, IsWhatProgramsFindAndCannotChange) {
  Gateway own(yaml());
  const Caller me(own, "a");
  EXPECT_EQ(me.out("cat /etc/os-release /opt/tool/f /var/lib/thing/f"), "ID=own-root\nof-the-tool\nlib\n");
  EXPECT_EQ(me.out("ls /usr/bin"), "bash\ncat\nid\nls\nreadlink\nstat\ntouch\ntrue\n");
  EXPECT_EQ(me.out("id -un; cat /etc/hostname; pwd"), "agent\nsandbox\n/workspace\n") << "a sandbox's own";
  EXPECT_NE(me.run("cat /etc/hidden").at("exit_code"), 0);
  for (const char* command : {"touch /usr/x", "touch /opt/x", "touch /var/lib/x", "touch /etc/x", "touch /x"})
    EXPECT_NE(me.run(command).at("exit_code"), 0) << command;
  EXPECT_EQ(me.out("touch x /tmp/y; ls; ls /tmp; echo $(</proc/self/comm)"), "x\ny\nbash\n");
  EXPECT_EQ(me.read("/etc/os-release", {{"scope", "sandbox"}}).body.at("content"), "ID=own-root\n");
}

TEST_F(Root, LinksInItLeadNowhereOnThisHost) {
  run("ln -s /etc dev; ln -s /root tmp; ln -s / proc; ln -s /etc workspace; ln -s / srv; ln -s /etc/shadow "
      "etc/key; "
      "ln -s /proc/1/root opt/out; rm -r var; ln -s / var");
  Gateway own(yaml());
  const Caller me(own, "a");
  EXPECT_EQ(me.out("stat -c %F /dev /tmp /proc /workspace"), "directory\ndirectory\ndirectory\ndirectory\n");
  EXPECT_EQ(me.out("stat -c '%F %t %T' /dev/null"), "character special file 1 3\n");
  EXPECT_NE(me.run("cat /etc/key").at("exit_code"), 0);
  EXPECT_EQ(me.out("cat /srv/etc/os-release; [ -e /opt/out/usr/bin/python3 ] || echo held"),
            "ID=own-root\nheld\n");
}

TEST_F(Root, AnUnfitOneIsRefusedWithTheReason) {
  run("chmod 777 .");
  EXPECT_NE(refusal(yaml()).find("can be changed by others"), std::string::npos);
  run("chmod 755 .");
  EXPECT_NE(refusal(yaml("toolchain_path: /usr/share")).find("is not in `root`"), std::string::npos);
  run("chmod 775 opt/tool/..");
  EXPECT_NE(refusal(yaml()).find("/opt` of `root` can be changed by others"), std::string::npos);
  run("chmod 755 opt");
  run("mv usr other");
  EXPECT_NE(refusal(yaml()).find("has no directory /usr"), std::string::npos);
  const std::string gone = path() + "/gone";
  EXPECT_NE(refusal("backends:\n  - name: namespace\n    config: {root: " + gone + "}\n").find("cannot find"),
            std::string::npos);
}

}  // namespace
}  // namespace isogate::test
