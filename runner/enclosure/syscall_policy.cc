#include "runner/enclosure/syscall_policy.h"

#include <sys/syscall.h>

namespace isogate {
namespace {

// Newer than Debian 12's headers; the same on every architecture.
constexpr Syscall kCachestat{"cachestat", 451}, kFchmodat2{"fchmodat2", 452},
    kMapShadowStack{"map_shadow_stack", 453}, kFutexWake{"futex_wake", 454}, kFutexWait{"futex_wait", 455},
    kFutexRequeue{"futex_requeue", 456}, kStatmount{"statmount", 457}, kListmount{"listmount", 458},
    kMseal{"mseal", 462};

#define ROW(name, ...) constexpr Syscall name[] = {__VA_ARGS__}
#define CALL(name) \
  { #name, SYS_##name }

// clang-format off
ROW(kReadWrite, CALL(read), CALL(write), CALL(readv), CALL(writev), CALL(pread64), CALL(pwrite64), CALL(preadv),
    CALL(pwritev), CALL(preadv2), CALL(pwritev2), CALL(lseek), CALL(sendfile), CALL(splice), CALL(tee),
    CALL(vmsplice), CALL(copy_file_range), CALL(readahead), CALL(fadvise64));
ROW(kFiles, CALL(openat), CALL(openat2), CALL(close), CALL(close_range), CALL(fstat), CALL(newfstatat), CALL(statx),
    CALL(statfs), CALL(fstatfs), CALL(faccessat), CALL(faccessat2), CALL(getdents64), CALL(getcwd), CALL(chdir),
    CALL(fchdir), CALL(readlinkat), CALL(truncate), CALL(ftruncate), CALL(fallocate), CALL(fsync), CALL(fdatasync),
    CALL(sync_file_range), CALL(umask), kCachestat);
ROW(kNames, CALL(mkdirat), CALL(unlinkat), CALL(renameat), CALL(renameat2), CALL(linkat), CALL(symlinkat),
    CALL(fchmod), CALL(fchmodat), kFchmodat2, CALL(fchown), CALL(fchownat), CALL(utimensat));
ROW(kAttributes, CALL(getxattr), CALL(lgetxattr), CALL(fgetxattr), CALL(listxattr), CALL(llistxattr),
    CALL(flistxattr), CALL(setxattr), CALL(lsetxattr), CALL(fsetxattr), CALL(removexattr), CALL(lremovexattr),
    CALL(fremovexattr));
ROW(kDescriptors, CALL(dup), CALL(dup3), CALL(flock), CALL(pipe2), CALL(eventfd2), CALL(signalfd4),
    CALL(timerfd_create), CALL(timerfd_settime), CALL(timerfd_gettime), CALL(inotify_init1),
    CALL(inotify_add_watch), CALL(inotify_rm_watch));
ROW(kWaiting, CALL(ppoll), CALL(pselect6), CALL(epoll_create1), CALL(epoll_ctl), CALL(epoll_pwait),
    CALL(epoll_pwait2));
ROW(kMemory, CALL(brk), CALL(munmap), CALL(mremap), CALL(mprotect), CALL(madvise), CALL(mincore),
    CALL(msync), CALL(mlock), CALL(mlock2), CALL(munlock), CALL(mlockall), CALL(munlockall), CALL(remap_file_pages),
    CALL(membarrier), CALL(pkey_alloc), CALL(pkey_free), CALL(pkey_mprotect), kMapShadowStack, kMseal,
    CALL(process_mrelease));
ROW(kProcesses, CALL(execve), CALL(execveat), CALL(exit), CALL(exit_group), CALL(wait4), CALL(waitid), CALL(getpid),
    CALL(getppid), CALL(gettid), CALL(getpgid), CALL(setpgid), CALL(getsid), CALL(setsid), CALL(set_tid_address),
    CALL(getrusage), CALL(prctl), CALL(pidfd_send_signal), CALL(capget), CALL(capset),
    CALL(getcpu));
ROW(kIdentity, CALL(getuid), CALL(geteuid), CALL(getgid), CALL(getegid), CALL(getgroups), CALL(getresuid),
    CALL(getresgid), CALL(setuid), CALL(setgid), CALL(setreuid), CALL(setregid), CALL(setresuid), CALL(setresgid),
    CALL(setgroups), CALL(setfsuid), CALL(setfsgid));
ROW(kLimits, CALL(getrlimit), CALL(setrlimit), CALL(getpriority), CALL(ioprio_get));
ROW(kScheduling, CALL(sched_yield), CALL(sched_getaffinity), CALL(sched_getparam), CALL(sched_getscheduler),
    CALL(sched_getattr), CALL(sched_get_priority_max), CALL(sched_get_priority_min), CALL(sched_rr_get_interval));
ROW(kOnProcess, CALL(prlimit64), CALL(sched_setaffinity), CALL(sched_setparam));
ROW(kScheduler, CALL(sched_setscheduler));
ROW(kSchedulerByPointer, CALL(sched_setattr));
ROW(kPriority, CALL(setpriority));
ROW(kIoPriority, CALL(ioprio_set));
ROW(kSignals, CALL(rt_sigaction), CALL(rt_sigprocmask), CALL(rt_sigreturn), CALL(rt_sigsuspend),
    CALL(rt_sigpending), CALL(rt_sigtimedwait), CALL(sigaltstack), CALL(restart_syscall));
ROW(kSignalTo, CALL(kill), CALL(tkill), CALL(tgkill), CALL(rt_sigqueueinfo), CALL(rt_tgsigqueueinfo),
    CALL(pidfd_open));
ROW(kThreads, CALL(futex), CALL(futex_waitv), kFutexWake, kFutexWait, kFutexRequeue, CALL(set_robust_list),
    CALL(get_robust_list), CALL(rseq));
ROW(kTime, CALL(clock_gettime), CALL(clock_getres), CALL(clock_nanosleep), CALL(nanosleep), CALL(gettimeofday),
    CALL(times), CALL(getitimer), CALL(setitimer), CALL(timer_create), CALL(timer_settime), CALL(timer_gettime),
    CALL(timer_getoverrun), CALL(timer_delete));
ROW(kNetwork, CALL(bind), CALL(listen), CALL(accept), CALL(accept4), CALL(connect), CALL(getsockname),
    CALL(getpeername), CALL(sendto), CALL(recvfrom), CALL(sendmsg), CALL(recvmsg), CALL(sendmmsg), CALL(recvmmsg),
    CALL(shutdown), CALL(getsockopt));
ROW(kSocketOptions, CALL(setsockopt));
ROW(kIpc, CALL(shmat), CALL(shmdt), CALL(shmctl), CALL(semget), CALL(semop), CALL(semtimedop),
    CALL(semctl), CALL(msgget), CALL(msgsnd), CALL(msgrcv), CALL(msgctl));
ROW(kAbout, CALL(uname), CALL(sysinfo), CALL(getrandom));
ROW(kOwnRules, CALL(landlock_create_ruleset), CALL(landlock_add_rule), CALL(landlock_restrict_self));
#if defined(__x86_64__)
ROW(kOldNames, CALL(open), CALL(creat), CALL(stat), CALL(lstat), CALL(access), CALL(getdents), CALL(readlink),
    CALL(mkdir), CALL(rmdir), CALL(unlink), CALL(rename), CALL(link), CALL(symlink), CALL(chmod), CALL(chown),
    CALL(lchown), CALL(utime), CALL(utimes), CALL(futimesat), CALL(dup2), CALL(pipe), CALL(eventfd), CALL(signalfd),
    CALL(inotify_init), CALL(poll), CALL(select), CALL(epoll_create), CALL(epoll_wait), CALL(fork), CALL(vfork),
    CALL(getpgrp), CALL(alarm), CALL(pause), CALL(time), CALL(arch_prctl));
ROW(kOldNode, CALL(mknod));
ROW(kPorts, CALL(iopl), CALL(ioperm), CALL(modify_ldt));
#endif
ROW(kClone, CALL(clone));
ROW(kSocket, CALL(socket));
ROW(kSocketPair, CALL(socketpair));
ROW(kFcntl, CALL(fcntl));
ROW(kIoctl, CALL(ioctl));
ROW(kPersonality, CALL(personality));
ROW(kSeccomp, CALL(seccomp));
ROW(kMap, CALL(mmap));
ROW(kMemoryFile, CALL(memfd_create));
ROW(kSharedMemory, CALL(shmget));
ROW(kNode, CALL(mknodat));
ROW(kSync, CALL(sync), CALL(syncfs));
ROW(kTracing, CALL(ptrace), CALL(process_vm_readv), CALL(process_vm_writev), CALL(kcmp));
ROW(kClone3, CALL(clone3));
ROW(kRing, CALL(io_uring_setup), CALL(io_uring_enter), CALL(io_uring_register));
ROW(kAio, CALL(io_setup), CALL(io_submit), CALL(io_getevents), CALL(io_pgetevents), CALL(io_cancel),
    CALL(io_destroy));
ROW(kKeys, CALL(keyctl), CALL(add_key), CALL(request_key));
ROW(kKernel, CALL(bpf), CALL(perf_event_open), CALL(userfaultfd), CALL(memfd_secret), CALL(pidfd_getfd));
ROW(kMounting, CALL(open_tree), CALL(move_mount), CALL(fsopen), CALL(fsconfig), CALL(fsmount), CALL(fspick),
    CALL(mount_setattr), kStatmount, kListmount);
ROW(kPlaces, CALL(mount), CALL(umount2), CALL(pivot_root), CALL(chroot), CALL(unshare), CALL(setns),
    CALL(sethostname), CALL(setdomainname));
ROW(kHandles, CALL(name_to_handle_at), CALL(open_by_handle_at), CALL(fanotify_init), CALL(fanotify_mark));
ROW(kMachine, CALL(reboot), CALL(kexec_load), CALL(init_module), CALL(finit_module), CALL(delete_module),
    CALL(swapon), CALL(swapoff), CALL(acct), CALL(quotactl), CALL(syslog), CALL(vhangup), CALL(settimeofday),
    CALL(clock_settime), CALL(adjtimex), CALL(clock_adjtime), CALL(nfsservctl), CALL(lookup_dcookie));
ROW(kNuma, CALL(mbind), CALL(set_mempolicy), CALL(get_mempolicy), CALL(migrate_pages), CALL(move_pages),
    CALL(process_madvise));
ROW(kQueues, CALL(mq_open), CALL(mq_unlink), CALL(mq_timedsend), CALL(mq_timedreceive), CALL(mq_notify),
    CALL(mq_getsetattr));

constexpr SyscallRow kTable[] = {
    {SyscallVerdict::kAllow, "reading and writing what is open", kReadWrite},
    {SyscallVerdict::kAllow, "files, by the rights of the sandbox's own user", kFiles},
    {SyscallVerdict::kAllow, "names and modes; set-user-id means nothing on nosuid mounts under no_new_privs", kNames},
    {SyscallVerdict::kAllow, "extended attributes: tar, cp -a", kAttributes},
    {SyscallVerdict::kAllow, "descriptors of its own", kDescriptors},
    {SyscallVerdict::kAllow, "waiting for them", kWaiting},
    {SyscallVerdict::kAllow, "its own memory; locked memory is limited", kMemory},
    {SyscallVerdict::kAllow, "processes in its own pid namespace", kProcesses},
    {SyscallVerdict::kAllow, "asking who one is; becoming another needs a capability that nobody has", kIdentity},
    {SyscallVerdict::kAllow, "lowering its own limits; raising them needs a capability", kLimits},
    {SyscallVerdict::kAllow, "asking how one is scheduled", kScheduling},
    {SyscallVerdict::kOnProcess, "the reaper has the same user and must not be starved; real time is limited to 0", kOnProcess},
    {SyscallVerdict::kScheduler, "the same; SCHED_IDLE never gets to die beside a busy neighbour", kScheduler},
    {SyscallVerdict::kByPointer, "the same; libc has sched_setscheduler", kSchedulerByPointer},
    {SyscallVerdict::kPriority, "the same", kPriority},
    {SyscallVerdict::kIoPriority, "the same", kIoPriority},
    {SyscallVerdict::kAllow, "its own signals", kSignals},
    {SyscallVerdict::kSignalTo, "signals in its own pid namespace", kSignalTo},
    {SyscallVerdict::kAllow, "threads", kThreads},
    {SyscallVerdict::kAllow, "reading clocks, timers", kTime},
    {SyscallVerdict::kAllow, "sockets that it could make", kNetwork},
    {SyscallVerdict::kAllow, "System V IPC in its own ipc namespace", kIpc},
    {SyscallVerdict::kAllow, "what everybody may know", kAbout},
    {SyscallVerdict::kAllow, "rules for itself, on top of ours", kOwnRules},
#if defined(__x86_64__)
    {SyscallVerdict::kAllow, "older names of the above", kOldNames},
    {SyscallVerdict::kMakeNode2, "FIFOs and sockets, no devices", kOldNode},
    {SyscallVerdict::kRefuse, "hardware ports and segment tables", kPorts},
#endif
    {SyscallVerdict::kClone, "threads and processes, no namespaces: CVE-2022-0185 begins in a user namespace", kClone},
    {SyscallVerdict::kSocket, "AF_VSOCK reaches the hypervisor, AF_ALG and AF_PACKET the kernel; AF_NETLINK buffers beyond every memory limit", kSocket},
    {SyscallVerdict::kSocketPair, "creates sockets as socket(2) does", kSocketPair},
    {SyscallVerdict::kSocketOption, "programs of sockets take from what the filters of all others need; a receive buffer of a connection that is not accepted counts to no memory limit", kSocketOptions},
    {SyscallVerdict::kFcntl, "F_SETPIPE_SZ on a pipe of the gateway's takes from what all its pipes may hold", kFcntl},
    {SyscallVerdict::kIoctl, "TIOCSETD loads line disciplines; TIOCSTI and TIOCLINUX type for others; FS_IOC_FSSETXATTR and FS_IOC_SETFLAGS take files out of a quota; nobody can empty a read-only subvolume; 32 bits count: CVE-2019-10063", kIoctl},
    {SyscallVerdict::kPersonality, "READ_IMPLIES_EXEC and ADDR_NO_RANDOMIZE weaken", kPersonality},
    {SyscallVerdict::kSeccomp, "further filters of its own", kSeccomp},
    {SyscallVerdict::kMap, "its own memory; the host's huge pages (MAP_HUGETLB) count in no memory limit", kMap},
    {SyscallVerdict::kMemoryFile, "the same (MFD_HUGETLB)", kMemoryFile},
    {SyscallVerdict::kSharedMemory, "the same (SHM_HUGETLB); else in its own ipc namespace", kSharedMemory},
    {SyscallVerdict::kMakeNode3, "FIFOs and sockets, no devices", kNode},
    {SyscallVerdict::kPretend, "a flush of all of the host's disks is a cheap way to hold others up", kSync},
    {SyscallVerdict::kDebugOnly, "debuggers; else a hole between programs of one user", kTracing},
    {SyscallVerdict::kAbsent, "its flags are behind a pointer; libc falls back to clone", kClone3},
    {SyscallVerdict::kAbsent, "io_uring does what a filter does not see", kRing},
    {SyscallVerdict::kAbsent, "kernel aio: attack surface without need", kAio},
    {SyscallVerdict::kAbsent, "kernel keyrings are not in a namespace", kKeys},
    {SyscallVerdict::kAbsent, "the kernel's own machinery", kKernel},
    {SyscallVerdict::kAbsent, "the newer mount interface", kMounting},
    {SyscallVerdict::kRefuse, "other namespaces, mounts and roots", kPlaces},
    {SyscallVerdict::kRefuse, "files by handle pass by every directory (shocker, 2014)", kHandles},
    {SyscallVerdict::kRefuse, "the machine, its clock and its log", kMachine},
    {SyscallVerdict::kRefuse, "memory placement", kNuma},
    {SyscallVerdict::kRefuse, "POSIX message queues pin kernel memory", kQueues},
};
// clang-format on

}  // namespace

std::span<const SyscallRow> syscall_policy() { return kTable; }

}  // namespace isogate
