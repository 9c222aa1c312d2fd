#include "gateway/supervisor/child.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "gateway/supervisor/process_setup.h"
#include "tests/support/program.h"

namespace isogate::supervisor {
namespace {

TEST(ChildEnvironment, passes_on_nothing_that_is_not_listed) {
  ::setenv("ISOGATE_TEST_SECRET", "hunter2", 1);
  ::setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1", 1);
  ::setenv("KUBECONFIG", "/etc/isogate/kubeconfig", 1);
  bool kubernetes = false, kubeconfig = false;
  for (const std::string& variable : child_environment()) {
    EXPECT_EQ(variable.find("hunter2"), std::string::npos);
    EXPECT_FALSE(variable.starts_with("LD_")) << variable;
    EXPECT_FALSE(variable.starts_with("HOME=")) << variable;
    kubernetes = kubernetes || variable == "KUBERNETES_SERVICE_HOST=10.0.0.1";
    kubeconfig = kubeconfig || variable == "KUBECONFIG=/etc/isogate/kubeconfig";
  }
  EXPECT_TRUE(kubernetes);
  EXPECT_TRUE(kubeconfig) << "the backend k8s would use another cluster";
  ::unsetenv("KUBERNETES_SERVICE_HOST");
  ::unsetenv("KUBECONFIG");
}

TEST(StartChild, that_cannot_be_executed_is_an_error_and_leaves_nothing) {
  const Fd text(::open("/etc/passwd", O_PATH | O_CLOEXEC));
  auto child = start_child({text.get(), {"isogate", "_front"}});
  ASSERT_FALSE(child.ok());
  EXPECT_NE(child.error().message.find("cannot start the process `_front`"), std::string::npos);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a zombie is left";
}

TEST(StartChild, its_end_is_described) {
  const Fd shell(::open("/bin/sh", O_PATH | O_CLOEXEC));
  auto child = start_child({shell.get(), {"sh", "-c", "kill -SEGV $$"}});
  ASSERT_TRUE(child.ok()) << child.error().message;
  int status = 0;
  ASSERT_EQ(::waitpid(child->pid, &status, 0), child->pid);
  EXPECT_EQ(describe_end(status), "signal 11 (SIGSEGV)");
  EXPECT_EQ(describe_end(3 << 8), "exit code 3");
}

TEST(Orphans, are_killed_at_the_end) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (auto prepared = prepare_process(); !prepared) ::_exit(90);
    if (::fork() == 0) {
      if (::fork() == 0) {
        ::signal(SIGTERM, SIG_IGN);
        for (;;) ::pause();
      }
      ::_exit(0);
    }
    const int killed = end_orphans();
    ::_exit(::waitpid(-1, nullptr, 0) == -1 ? killed : 91);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

}  // namespace
}  // namespace isogate::supervisor
