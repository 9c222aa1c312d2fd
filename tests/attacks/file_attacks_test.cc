#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "lib/fd.h"
#include "tests/attacks/attack.h"
#include "tests/support/link_race.h"

// Group F: the API's file calls first, then execs.
namespace isogate::test {
namespace {

// Every call that takes a path, with this path.
std::vector<Answer> every_call_with(const Caller& me, const std::string& path) {
  return {me.read(path),
          me.write(path, "x"),
          me.write(path, "x", {{"append", true}}),
          me.post("/workspace/list", {{"path", path}, {"recursive", true}}),
          me.post("/workspace/mkdir", {{"path", path + "/new"}}),
          me.post("/workspace/move", {{"path", "mine"}, {"to", path + "/moved"}}),
          me.post("/workspace/move", {{"path", path + "/passwd"}, {"to", "got"}}),
          me.call("GET", me.file_url(path)),
          me.call("PUT", me.file_url(path), {}, "x")};
}

TEST_F(FileAttack, F1_ParentDirectoriesAndAbsolutePathsAreRefused) {
  for (const char* path : {"../../etc/passwd", "/etc/passwd", "a/../../x", "./..", "..", "../",
                           "/workspace/../../../etc/passwd", "/../etc/passwd"}) {
    EXPECT_TRUE(kept_in(x().read(path))) << path;
    EXPECT_TRUE(kept_in(x().write(path, "x"))) << path;
    EXPECT_TRUE(kept_in(x().post("/workspace/stat", {{"path", path}}))) << path;
    EXPECT_TRUE(kept_in(x().post("/workspace/list", {{"path", path}}))) << path;
    EXPECT_TRUE(kept_in(x().post("/workspace/mkdir", {{"path", path}}))) << path;
    EXPECT_TRUE(kept_in(x().post("/workspace/remove", {{"path", path}, {"recursive", true}}))) << path;
    EXPECT_TRUE(kept_in(x().post("/workspace/move", {{"path", path}, {"to", "got"}}))) << path;
  }
}

TEST_F(FileAttack, F2_EncodedDotsAreLiteralNames) {
  for (const char* path :
       {"%2e%2e/x", "..%2f", "..\\", "....//x", "%252e%252e/x", "..%5cx", "\xe2\x80\xa5/x"})
    EXPECT_TRUE(refused(x().read(path), 404, "file_not_found")) << path;
  for (const char* path : {"%2e%2e/x", "%2e%2e%2fx", "..%2f..%2fetc%2fpasswd", "a/%2e%2e/%2e%2e/x"})
    EXPECT_TRUE(kept_in(x().call("GET", x().file_url(path)))) << path;
}

TEST_F(FileAttack, F3_F4_LinksThatLeaveAreRefused) {
  const std::string outside = "/tmp/isogate-attack-" + new_mark();
  x().run(
      "echo mine > mine; ln -s /etc/shadow shadow; ln -s /etc/passwd passwd; ln -s / d; ln -s "
      "../../../../../../.. up; ln -s " +
      outside + " new");
  for (const std::string& path : {std::string("shadow"), std::string("passwd"), std::string("d/etc/passwd"),
                                  std::string("up/etc/passwd")})
    EXPECT_TRUE(refused(x().read(path), 403, "permission_denied")) << path;
  for (const std::string& path : {std::string("d/etc"), "d" + outside, "up" + outside, std::string("new")})
    for (const Answer& answer : every_call_with(x(), path))
      EXPECT_TRUE(refused(answer, 403, "permission_denied")) << path;
  EXPECT_NE(::access(outside.c_str(), F_OK), 0) << "made outside of the workspace";
  EXPECT_EQ(x().out("ls -d " + outside + " 2>/dev/null; true"), "") << "made in the sandbox, outside of it";
}

TEST_F(FileAttack, F5_ADanglingLinkThatLeavesIsNotWrittenThrough) {
  const std::string target = "/tmp/isogate-attack-" + new_mark();
  x().run("ln -s " + target +
          " dangling; ln -s dangling second; mkdir d; ln -s ../../x up; ln -s ../up d/up");
  for (const char* path : {"second", "up", "d/up"})
    EXPECT_TRUE(refused(x().write(path, "x"), 403, "permission_denied")) << path;
  EXPECT_TRUE(refused(x().write("dangling", "x"), 403, "permission_denied"));
  EXPECT_TRUE(refused(x().call("PUT", x().file_url("dangling"), {}, "x"), 403, "permission_denied"));
  EXPECT_TRUE(refused(x().write("dangling", "x", {{"append", true}}), 403, "permission_denied"));
  EXPECT_NE(::access(target.c_str(), F_OK), 0);
  EXPECT_EQ(x().out("ls -d " + target + " 2>/dev/null; true"), "");
}

TEST_F(FileAttack, F6_LinksInsideWork) {
  x().run("mkdir real; echo in > real/f; ln -s real alias");
  EXPECT_EQ(x().content("alias/f"), "in\n");
}

// CVE-2018-15664: a directory that keeps turning into a link.
TEST_F(FileAttack, F7_F8_ARaceOfLinksLeadsNowhere) {
  const LinkRace race = race_links(x());
  EXPECT_EQ(race.escaped, "");
  EXPECT_GT(race.inside, 0) << "the race was not run";
  EXPECT_GT(race.held, 0) << "the race was not run";
  RecordProperty("tries", race.tries);
}

TEST_F(FileAttack, F10_MagicLinksAreRefused) {
  x().run(
      "echo mine > mine; ln -s /proc/self/root r; ln -s /proc/self/fd/3 fd; ln -s /proc/self/exe exe; ln -s "
      "/proc/self/cwd/.. cwd; ln -s /dev/stdin in; ln -s /dev/fd/0 zero");
  for (const char* path : {"r/etc/passwd", "fd", "exe", "cwd/x", "in", "zero"}) {
    EXPECT_TRUE(refused(x().read(path), 403, "permission_denied")) << path;
    for (const Answer& answer : every_call_with(x(), path))
      EXPECT_TRUE(refused(answer, 403, "permission_denied")) << path;
  }
}

TEST_F(FileAttack, F11_F12_OtherProcessesKeepTheirSecrets) {
  if (!separates_agents()) GTEST_SKIP() << "all run as one user: " << kNoIsolation;
  const std::string all = x().out(
      "for p in /proc/[0-9]*; do cat $p/environ $p/root/etc/shadow 2>/dev/null; ls $p/cwd/ $p/fd/ "
      "2>/dev/null; done; cat /proc/1/maps /proc/1/mem 2>/dev/null; true");
  EXPECT_EQ(all.find("the-gateway-s-own-secret"), std::string::npos);
  EXPECT_EQ(all.find("root:"), std::string::npos);
  for (const pid_t pid : {gateway().pid(), front_of(gateway()), host_of(gateway(), backend())}) {
    const std::string p = "/proc/" + std::to_string(pid);
    const Json tried = x().run("cat " + p + "/environ; cat " + p + "/maps; ls " + p + "/fd; ls " + p +
                               "/root/; dd if=" + p + "/mem bs=1 count=1; cat " + p + "/stack");
    EXPECT_EQ(tried.at("stdout"), "") << command_line(pid);
  }
  // By file calls, which a process of isogate's makes.
  std::vector<std::string> processes = {"/proc/self", "/proc/thread-self"};
  for (const pid_t pid : {gateway().pid(), front_of(gateway()), host_of(gateway(), backend())})
    processes.push_back("/proc/" + std::to_string(pid));
  for (const std::string& p : processes)
    for (const char* name :
         {"/environ", "/maps", "/status", "/fd", "/fdinfo", "/map_files", "/root", "/cwd"}) {
      const Json request{{"path", p + name}, {"scope", "sandbox"}};
      for (const char* call : {"read", "list", "stat"}) {
        const Answer tried = x().post(std::string("/workspace/") + call, request);
        EXPECT_GE(tried.status, 400) << call << " " << p << name << ": " << tried.text;
      }
    }
}

TEST_F(FileAttack, F14_NoDescriptorIsInherited) {
  std::vector<std::unique_ptr<ExecStream>> busy;
  for (int i = 0; i < 50; ++i) {
    busy.push_back(std::make_unique<ExecStream>(y(), Json{{"command", "sleep 60"}, {"stdin", "x"}}));
    ASSERT_EQ(busy.back()->next()->at("event"), "start");
  }
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(x().run_argv({"/usr/bin/python3", "-c",
                            "import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd'))[:-1])"})
                  .at("stdout"),
              "[0, 1, 2]\n");
}

// Renaming over it never changes what another link of the same file holds.
TEST_F(FileAttack, F17_HardLinksShareNothing) {
  y().run("echo of-y > secret; chmod 666 secret; chmod 777 .");
  const std::string other = y().out("printf %s \"$PWD\"");
  if (separates_agents()) {
    EXPECT_NE(x().run("ln '" + other + "/secret' got && cat got").at("stdout"), "of-y\n");
  }
  if (isolates()) {  // everything else is another mount: EXDEV
    EXPECT_EQ(said(x(),
                   "open('/tmp/own','w').close()\n"
                   "for p in ('/etc/passwd','/usr/bin/env','/proc/self/status','/tmp/own','/dev/null'):\n"
                   "  try: os.link(p,'got'); print('linked',p)\n"
                   "  except OSError as e:\n"
                   "    if e.errno!=18: print(p,e)\n"),
              "");
  }
  x().run("echo first > a; ln a b; mkdir keep; ln a keep/c");
  ASSERT_TRUE(succeeded(x().write("a", "second")));
  EXPECT_EQ(x().out("cat b keep/c"), "first\nfirst\n") << "a shared inode was written";
  EXPECT_EQ(x().content("a"), "second");
}

TEST_F(FileAttack, F19_F20_MountsAndRootsArePrivileged) {
  if (!separates_agents()) GTEST_SKIP() << kNoIsolation;
  for (const char* command : {"unshare -m true", "mount -t tmpfs none .", "mount --bind /etc .",
                              "umount -l /", "chroot . /bin/true", "nsenter -t 1 -m true", "pivot_root . ."})
    EXPECT_TRUE(denied(x(), command));
}

TEST_F(FileAttack, F21_NoDeviceAndNoSetuid) {
  if (!separates_agents()) GTEST_SKIP() << kNoIsolation;
  EXPECT_TRUE(denied(x(), "mknod z b 8 0"));
  EXPECT_TRUE(denied(x(), "mknod k c 1 1"));
  // A setuid binary that is there gives nothing: no_new_privs.
  const std::string uid = x().out("id -u");
  EXPECT_EQ(x().run("cp /usr/bin/id mine && chmod 4755 mine && ./mine -u").at("stdout"), uid);
}

TEST_F(FileAttack, F22_HandlesCannotBeOpened) {
  if (!separates_agents()) GTEST_SKIP() << kNoIsolation;
  const std::string shocker =
      "import ctypes,os\nlibc=ctypes.CDLL(None,use_errno=True)\n"
      "class H(ctypes.Structure): _fields_=[('n',ctypes.c_uint),('t',ctypes.c_int),('b',ctypes.c_ubyte*8)]\n"
      "h=H(8,1,(ctypes.c_ubyte*8)(2))\nfd=os.open('/',os.O_RDONLY)\n"
      "print(libc.open_by_handle_at(fd,ctypes.byref(h),0),ctypes.get_errno())\n";
  EXPECT_EQ(x().run_argv({"/usr/bin/python3", "-c", shocker}).at("stdout"), "-1 1\n");
}

TEST_F(FileAttack, F23_F24_WhatIsNoFileIsNeverOpened) {
  x().run(
      "mkfifo fifo; ln -s /dev/zero zero; ln -s /dev/tty tty; ln -s /proc/kmsg kmsg; ln -s fifo link; mkdir "
      "dir; /usr/bin/python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'");
  for (const char* path : {"fifo", "zero", "tty", "kmsg", "link", "dir", "sock"}) {
    const double took = seconds_of([&] {
      for (const Answer& answer : {x().read(path), x().write(path, "x"), x().call("GET", x().file_url(path)),
                                   x().call("PUT", x().file_url(path), {}, "x")})
        EXPECT_TRUE(answer.status >= 400 && answer.status < 500)
            << path << " " << answer.status << " " << answer.text;
    });
    EXPECT_LT(took, 20) << path;
  }
}

TEST_F(FileAttack, F27_OverwritesAreDefined) {
  x().run("cp /bin/sleep program; echo ro > readonly; chmod 444 readonly; mkdir dir; ln -s readonly link");
  ExecStream running(x(), {{"command", "./program 60"}});
  ASSERT_EQ(running.next()->at("event"), "start");
  ASSERT_TRUE(there_within(5, "./program 60"));
  EXPECT_TRUE(succeeded(x().write("program", "replaced")))
      << "a file that is executed is replaced by renaming";
  EXPECT_TRUE(refused(x().write("readonly", "written"), 403, "permission_denied"));
  EXPECT_TRUE(succeeded(x().write("readonly", "written", {{"replace", true}})));
  EXPECT_EQ(x().out("stat -c %a readonly"), "444\n");
  EXPECT_TRUE(refused(x().write("dir", "x"), 409, "is_directory"));
  EXPECT_TRUE(refused(x().write("link", "x"), 403, "permission_denied")) << "it leads to a read-only file";
  EXPECT_TRUE(succeeded(x().write("link", "through", {{"replace", true}})));
  EXPECT_EQ(x().out("readlink link; cat readonly"), "readonly\nthrough") << "what it leads to is replaced";
  for (const char* path : {"new/", ".", "", "/", "./"}) EXPECT_GE(x().write(path, "x").status, 400) << path;
}

TEST_F(FileAttack, F28_NoNameBreaksAListing) {
  x().run_argv(
      {"/usr/bin/python3", "-c",
       "import os\nfor n in [b'\\xff\\xfe', b'a\\nb', b'\"', b'\\\\', b'-rf', b'*', b'\\x1b[31m', "
       "'\\U0001f600'.encode(), b'\\xc3\\xa9', b'e\\xcc\\x81', b'n'*255, b'\\x7f']: open(n,'w').close()"});
  const Answer listing = x().post("/workspace/list", {{"path", "."}});
  ASSERT_TRUE(succeeded(listing));
  EXPECT_EQ(listing.body.at("entries").size(), 12u);
  for (const std::string& path : {std::string(256, 'n'), std::string(4096, 'p')})
    EXPECT_TRUE(refused(x().read(path), 400, "invalid_request"));
  std::string deep;
  for (int i = 0; i < 10000; ++i) deep += "d/";
  EXPECT_TRUE(refused(x().write(deep + "x", "x"), 400, "invalid_request"));
}

TEST_F(FileAttack, F31_ARacingTenantDoesNotStopThePurge) {
  x().run("mkdir -p t/{1..20}/{1..20}; chmod 000 t/3; chmod 500 t/4; ln -s /etc t/5/etc");
  ExecStream racing(
      x(), {{"command",
             "cd t; while :; do for i in {6..12}; do mv $i m$i; mkdir -p $i/new; mv m$i $i/new/; done; done"},
            {"timeout_sec", 30}});
  ASSERT_EQ(racing.next()->at("event"), "start");
  EXPECT_TRUE(succeeded(x().post("/workspace/remove", {{"path", "t/5"}, {"recursive", true}})));
  const Answer purged = x().call("DELETE", "/sandboxes/" + x().agent() + "?purge=true");
  EXPECT_TRUE(succeeded(purged));
  const auto events = racing.rest();
  const std::string outcome = events.back().value("outcome", "");
  // A container that is late is killed from outside.
  EXPECT_TRUE(outcome == "killed" || (shares_container() && outcome == "unknown")) << events.back();
  EXPECT_EQ(::access("/etc/passwd", F_OK), 0);
  EXPECT_EQ(x().out("ls -A"), "");
}

// FS_IMMUTABLE_FL and FS_APPEND_FL of a file; what cannot be set fails the test.
void set_flags(const std::string& path, int flags) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(file) << path;
  ASSERT_EQ(::ioctl(file.get(), FS_IOC_SETFLAGS, &flags), 0) << path;
}

TEST_F(FileAttack, F31_NoTenantMakesFilesThatStay) {
  if (!separates_agents()) GTEST_SKIP() << kNoIsolation;
  x().run("mkdir d; echo f > f");
  EXPECT_EQ(said(x(),
                 "import fcntl\n"
                 "for p in ('d','f','.'):\n"
                 "  for flag in (0x10,0x20):\n"
                 "    fd=os.open(p,os.O_RDONLY)\n"
                 "    try: fcntl.ioctl(fd,0x40086602,struct.pack('i',flag)); print(p,flag)\n"
                 "    except OSError as e:\n"
                 "      if e.errno not in (1,25,95): print(p,e)\n"),
            "");
}

// A file that root of this host made immutable: calls report it, a purge moves it out of reach, and it is
// removed once that is possible.
TEST_F(FileAttack, F31_WhatCannotBeRemovedIsOutOfReachAfterAPurge) {
  if (!is_root()) GTEST_SKIP() << "only root makes files immutable";
  x().run("mkdir -p d/e; echo kept > f; echo kept > d/e/g; echo plain > plain");
  const std::string place = workspace_on_host(gateway(), x());
  if (place.empty()) GTEST_SKIP() << "this host does not see the workspaces of " << backend();
  const std::string top = place.substr(0, place.find("/sandboxes/")) + "/sandboxes/.purged";
  const std::vector<std::string> immutable = {"/f", "/d/e/g", "/d/e"};
  for (const std::string& each : immutable) set_flags(place + each, FS_IMMUTABLE_FL);
  EXPECT_TRUE(refused(x().write("f", "other"), 403, "permission_denied"));
  EXPECT_TRUE(refused(x().post("/workspace/remove", {{"path", "f"}}), 403, "permission_denied"));
  EXPECT_TRUE(
      refused(x().post("/workspace/remove", {{"path", "d"}, {"recursive", true}}), 403, "permission_denied"));
  EXPECT_TRUE(succeeded(x().call("DELETE", "/sandboxes/" + x().agent())));
  EXPECT_EQ(x().out("cat f d/e/g plain"), "kept\nkept\nplain\n") << "an end without purge keeps all of it";
  EXPECT_TRUE(succeeded(x().call("DELETE", "/sandboxes/" + x().agent() + "?purge=true")));
  EXPECT_EQ(x().out("ls -A"), "");
  EXPECT_TRUE(refused(x().read("f"), 404, "file_not_found"));
  std::vector<std::string> left;
  if (std::filesystem::exists(top))
    for (const auto& entry : std::filesystem::recursive_directory_iterator(top)) left.push_back(entry.path());
  size_t found = 0;
  for (const std::string& each : left) {
    EXPECT_FALSE(each.ends_with("/plain")) << "what could be removed was not";
    for (const std::string& name : immutable) {
      if (!each.ends_with("/workspace" + name)) continue;
      ++found;
      set_flags(each, 0);
    }
  }
  EXPECT_EQ(found, immutable.size());
  y().run("true");
  EXPECT_TRUE(succeeded(y().call("DELETE", "/sandboxes/" + y().agent() + "?purge=true")));
  EXPECT_TRUE(eventually(90, [&] { return std::filesystem::is_empty(top); }))
      << "it stays although it can be removed";
}

// CVE-2024-28189: a recursive chown that follows a link.
TEST_F(FileAttack, F32_NothingOutsideChangesItsOwner) {
  const TemporaryDirectory outside;
  const std::string file = outside.file("target", "x");
  x().run("mkdir a; ln -s " + file + " a/link; ln -s /etc/passwd b");
  x().call("DELETE", "/sandboxes/" + x().agent());
  x().run("true");
  struct stat target {
  }, passwd{};
  ASSERT_EQ(::stat(file.c_str(), &target), 0);
  ASSERT_EQ(::stat("/etc/passwd", &passwd), 0);
  EXPECT_EQ(target.st_uid, ::geteuid());
  EXPECT_EQ(passwd.st_uid, 0u);
}

TEST_F(FileAttack, F33_NoShellSeesAFileName) {
  const std::string name = "x;touch pwned;$(touch pwned)`touch pwned`|touch pwned";
  ASSERT_TRUE(succeeded(x().write(name, "#!/bin/sh\necho ran\n", {{"mode", "0755"}})));
  EXPECT_EQ(x().run_argv({"./" + name}).at("stdout"), "ran\n");
  EXPECT_EQ(x().run("true", {{"artifact_dir", "$(touch pwned)"}}).at("exit_code"), 0);
  EXPECT_TRUE(refused(x().exec("true", {{"cwd", "$(touch pwned)"}}), 400, "invalid_request"));
  EXPECT_TRUE(refused(x().read("pwned"), 404, "file_not_found"));
}

TEST_F(FileAttack, F38_AttributesOfATenantMeanNothing) {
  x().run("echo a > f; /usr/bin/python3 -c \"import os; os.setxattr('f', 'user.note', b'x')\" || true");
  EXPECT_NE(x().run_argv({"/usr/bin/python3", "-c",
                          "import os; os.setxattr('f', 'security.capability', "
                          "b'\\x01\\0\\0\\2\\xff\\xff\\xff\\xff' + b'\\0'*12)"})
                .at("exit_code"),
            0);
  ASSERT_TRUE(succeeded(x().write("f", "b")));
  EXPECT_EQ(x().run_argv({"/usr/bin/python3", "-c", "import os; print(os.listxattr('f'))"}).at("stdout"),
            "[]\n")
      << "an overwrite drops them";
}

}  // namespace
}  // namespace isogate::test
