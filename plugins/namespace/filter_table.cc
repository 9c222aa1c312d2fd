#include "plugins/namespace/filter_table.h"

#include <sys/syscall.h>

namespace isogate::ns {
namespace {

// Newer than Debian 12's headers; the same on every architecture.
constexpr int kCachestat = 451, kFchmodat2 = 452, kMapShadowStack = 453, kFutexWake = 454, kFutexWait = 455,
              kFutexRequeue = 456, kStatmount = 457, kListmount = 458, kMseal = 462;

#define ROW(name, ...) constexpr int name[] = {__VA_ARGS__}

// clang-format off
ROW(kReadWrite, SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_preadv, SYS_pwritev,
    SYS_preadv2, SYS_pwritev2, SYS_lseek, SYS_sendfile, SYS_splice, SYS_tee, SYS_vmsplice, SYS_copy_file_range,
    SYS_readahead, SYS_fadvise64);
ROW(kFiles, SYS_openat, SYS_openat2, SYS_close, SYS_close_range, SYS_fstat, SYS_newfstatat, SYS_statx, SYS_statfs,
    SYS_fstatfs, SYS_faccessat, SYS_faccessat2, SYS_getdents64, SYS_getcwd, SYS_chdir, SYS_fchdir, SYS_readlinkat,
    SYS_truncate, SYS_ftruncate, SYS_fallocate, SYS_fsync, SYS_fdatasync, SYS_sync_file_range, SYS_umask, kCachestat);
ROW(kNames, SYS_mkdirat, SYS_unlinkat, SYS_renameat, SYS_renameat2, SYS_linkat, SYS_symlinkat, SYS_fchmod,
    SYS_fchmodat, kFchmodat2, SYS_fchown, SYS_fchownat, SYS_utimensat);
ROW(kAttributes, SYS_getxattr, SYS_lgetxattr, SYS_fgetxattr, SYS_listxattr, SYS_llistxattr, SYS_flistxattr,
    SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr, SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr);
ROW(kDescriptors, SYS_dup, SYS_dup3, SYS_flock, SYS_pipe2, SYS_eventfd2, SYS_memfd_create,
    SYS_signalfd4, SYS_timerfd_create, SYS_timerfd_settime, SYS_timerfd_gettime, SYS_inotify_init1,
    SYS_inotify_add_watch, SYS_inotify_rm_watch);
ROW(kWaiting, SYS_ppoll, SYS_pselect6, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait, SYS_epoll_pwait2);
ROW(kMemory, SYS_brk, SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_mincore, SYS_msync,
    SYS_mlock, SYS_mlock2, SYS_munlock, SYS_mlockall, SYS_munlockall, SYS_remap_file_pages, SYS_membarrier,
    SYS_pkey_alloc, SYS_pkey_free, SYS_pkey_mprotect, kMapShadowStack, kMseal, SYS_process_mrelease);
ROW(kProcesses, SYS_execve, SYS_execveat, SYS_exit, SYS_exit_group, SYS_wait4, SYS_waitid, SYS_getpid, SYS_getppid,
    SYS_gettid, SYS_getpgid, SYS_setpgid, SYS_getsid, SYS_setsid, SYS_set_tid_address, SYS_getrusage,
    SYS_prctl, SYS_pidfd_open, SYS_pidfd_send_signal, SYS_capget, SYS_capset, SYS_getcpu);
ROW(kIdentity, SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_getgroups, SYS_getresuid, SYS_getresgid,
    SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid, SYS_setgroups, SYS_setfsuid,
    SYS_setfsgid);
ROW(kLimits, SYS_prlimit64, SYS_getrlimit, SYS_setrlimit, SYS_getpriority, SYS_setpriority, SYS_ioprio_get,
    SYS_ioprio_set);
ROW(kScheduling, SYS_sched_yield, SYS_sched_getaffinity, SYS_sched_setaffinity, SYS_sched_getparam,
    SYS_sched_setparam, SYS_sched_getscheduler, SYS_sched_setscheduler, SYS_sched_getattr, SYS_sched_setattr,
    SYS_sched_get_priority_max, SYS_sched_get_priority_min, SYS_sched_rr_get_interval);
ROW(kSignals, SYS_kill, SYS_tkill, SYS_tgkill, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn,
    SYS_rt_sigsuspend, SYS_rt_sigpending, SYS_rt_sigtimedwait, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo,
    SYS_sigaltstack, SYS_restart_syscall);
ROW(kThreads, SYS_futex, SYS_futex_waitv, kFutexWake, kFutexWait, kFutexRequeue, SYS_set_robust_list,
    SYS_get_robust_list, SYS_rseq);
ROW(kTime, SYS_clock_gettime, SYS_clock_getres, SYS_clock_nanosleep, SYS_nanosleep, SYS_gettimeofday, SYS_times,
    SYS_getitimer, SYS_setitimer, SYS_timer_create, SYS_timer_settime, SYS_timer_gettime, SYS_timer_getoverrun,
    SYS_timer_delete);
ROW(kNetwork, SYS_bind, SYS_listen, SYS_accept, SYS_accept4, SYS_connect, SYS_getsockname,
    SYS_getpeername, SYS_sendto, SYS_recvfrom, SYS_sendmsg, SYS_recvmsg, SYS_sendmmsg, SYS_recvmmsg, SYS_shutdown,
    SYS_getsockopt, SYS_setsockopt);
ROW(kIpc, SYS_shmget, SYS_shmat, SYS_shmdt, SYS_shmctl, SYS_semget, SYS_semop, SYS_semtimedop, SYS_semctl,
    SYS_msgget, SYS_msgsnd, SYS_msgrcv, SYS_msgctl);
ROW(kAbout, SYS_uname, SYS_sysinfo, SYS_getrandom);
ROW(kOwnRules, SYS_landlock_create_ruleset, SYS_landlock_add_rule, SYS_landlock_restrict_self);
#if defined(__x86_64__)
ROW(kOldNames, SYS_open, SYS_creat, SYS_stat, SYS_lstat, SYS_access, SYS_getdents, SYS_readlink, SYS_mkdir,
    SYS_rmdir, SYS_unlink, SYS_rename, SYS_link, SYS_symlink, SYS_chmod, SYS_chown, SYS_lchown, SYS_utime,
    SYS_utimes, SYS_futimesat, SYS_dup2, SYS_pipe, SYS_eventfd, SYS_signalfd, SYS_inotify_init, SYS_poll, SYS_select,
    SYS_epoll_create, SYS_epoll_wait, SYS_fork, SYS_vfork, SYS_getpgrp, SYS_alarm, SYS_pause, SYS_time,
    SYS_arch_prctl);
ROW(kOldNode, SYS_mknod);
ROW(kPorts, SYS_iopl, SYS_ioperm, SYS_modify_ldt);
#endif
ROW(kClone, SYS_clone);
ROW(kSocket, SYS_socket);
ROW(kSocketPair, SYS_socketpair);
ROW(kFcntl, SYS_fcntl);
ROW(kIoctl, SYS_ioctl);
ROW(kPersonality, SYS_personality);
ROW(kSeccomp, SYS_seccomp);
ROW(kNode, SYS_mknodat);
ROW(kSync, SYS_sync, SYS_syncfs);
ROW(kTracing, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_kcmp);
ROW(kClone3, SYS_clone3);
ROW(kRing, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register);
ROW(kAio, SYS_io_setup, SYS_io_submit, SYS_io_getevents, SYS_io_pgetevents, SYS_io_cancel, SYS_io_destroy);
ROW(kKeys, SYS_keyctl, SYS_add_key, SYS_request_key);
ROW(kKernel, SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_memfd_secret, SYS_pidfd_getfd);
ROW(kMounting, SYS_open_tree, SYS_move_mount, SYS_fsopen, SYS_fsconfig, SYS_fsmount, SYS_fspick, SYS_mount_setattr,
    kStatmount, kListmount);
ROW(kPlaces, SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_unshare, SYS_setns, SYS_sethostname,
    SYS_setdomainname);
ROW(kHandles, SYS_name_to_handle_at, SYS_open_by_handle_at, SYS_fanotify_init, SYS_fanotify_mark);
ROW(kMachine, SYS_reboot, SYS_kexec_load, SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_swapon,
    SYS_swapoff, SYS_acct, SYS_quotactl, SYS_syslog, SYS_vhangup, SYS_settimeofday, SYS_clock_settime,
    SYS_adjtimex, SYS_clock_adjtime, SYS_nfsservctl, SYS_lookup_dcookie);
ROW(kNuma, SYS_mbind, SYS_set_mempolicy, SYS_get_mempolicy, SYS_migrate_pages, SYS_move_pages,
    SYS_process_madvise);
ROW(kQueues, SYS_mq_open, SYS_mq_unlink, SYS_mq_timedsend, SYS_mq_timedreceive, SYS_mq_notify, SYS_mq_getsetattr);

constexpr FilterRow kTable[] = {
    {Verdict::kAllow, "reading and writing what is open", kReadWrite},
    {Verdict::kAllow, "files, by the rights of the sandbox's own user", kFiles},
    {Verdict::kAllow, "names and modes; set-user-id means nothing on nosuid mounts under no_new_privs", kNames},
    {Verdict::kAllow, "extended attributes: tar, cp -a", kAttributes},
    {Verdict::kAllow, "descriptors of its own", kDescriptors},
    {Verdict::kAllow, "waiting for them", kWaiting},
    {Verdict::kAllow, "its own memory; locked memory is limited", kMemory},
    {Verdict::kAllow, "processes in its own pid namespace", kProcesses},
    {Verdict::kAllow, "asking who one is; becoming another needs a capability that nobody has", kIdentity},
    {Verdict::kAllow, "lowering limits and priorities; raising them needs a capability", kLimits},
    {Verdict::kAllow, "scheduling; real time is limited to 0", kScheduling},
    {Verdict::kAllow, "signals in its own pid namespace", kSignals},
    {Verdict::kAllow, "threads", kThreads},
    {Verdict::kAllow, "reading clocks, timers", kTime},
    {Verdict::kAllow, "sockets that it could make", kNetwork},
    {Verdict::kAllow, "System V IPC in its own ipc namespace", kIpc},
    {Verdict::kAllow, "what everybody may know", kAbout},
    {Verdict::kAllow, "rules for itself, on top of ours", kOwnRules},
#if defined(__x86_64__)
    {Verdict::kAllow, "older names of the above", kOldNames},
    {Verdict::kMakeNode2, "FIFOs and sockets, no devices", kOldNode},
    {Verdict::kRefuse, "hardware ports and segment tables", kPorts},
#endif
    {Verdict::kClone, "threads and processes, no namespaces: CVE-2022-0185 begins in a user namespace", kClone},
    {Verdict::kSocket, "AF_VSOCK reaches the hypervisor, AF_ALG and AF_PACKET the kernel", kSocket},
    {Verdict::kSocketPair, "the same door as socket(2)", kSocketPair},
    {Verdict::kFcntl, "F_SETPIPE_SZ on a pipe of the gateway's takes from what all its pipes may hold", kFcntl},
    {Verdict::kIoctl, "TIOCSETD loads line disciplines; TIOCSTI and TIOCLINUX type for others; 32 bits count: CVE-2019-10063", kIoctl},
    {Verdict::kPersonality, "READ_IMPLIES_EXEC and ADDR_NO_RANDOMIZE weaken", kPersonality},
    {Verdict::kSeccomp, "further filters of its own", kSeccomp},
    {Verdict::kMakeNode3, "FIFOs and sockets, no devices", kNode},
    {Verdict::kPretend, "a flush of all of the host's disks is a cheap way to hold others up", kSync},
    {Verdict::kDebugOnly, "debuggers; else a hole between programs of one user", kTracing},
    {Verdict::kAbsent, "its flags are behind a pointer; libc falls back to clone", kClone3},
    {Verdict::kAbsent, "io_uring does what a filter does not see", kRing},
    {Verdict::kAbsent, "kernel aio: attack surface without need", kAio},
    {Verdict::kAbsent, "kernel keyrings are not in a namespace", kKeys},
    {Verdict::kAbsent, "the kernel's own machinery", kKernel},
    {Verdict::kAbsent, "the newer mount interface", kMounting},
    {Verdict::kRefuse, "other namespaces, mounts and roots", kPlaces},
    {Verdict::kRefuse, "files by handle pass by every directory (shocker, 2014)", kHandles},
    {Verdict::kRefuse, "the machine, its clock and its log", kMachine},
    {Verdict::kRefuse, "memory placement", kNuma},
    {Verdict::kRefuse, "POSIX message queues pin kernel memory", kQueues},
};
// clang-format on

}  // namespace

std::span<const FilterRow> filter_table() { return kTable; }

}  // namespace isogate::ns
