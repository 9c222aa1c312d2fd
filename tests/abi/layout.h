/* The ABI as version 1.0 froze it, on LP64. A SIZE grows when a field is appended; no other line here ever
 * changes. Compiled as C11 and as C++20. */
#include "isogate/backend.h"
#include "isogate/disk.h"
#include "isogate/kept_exec.h"
#include "isogate/orphans.h"

#ifdef __cplusplus
#define HOLDS(condition) static_assert(condition, #condition)
#else
#define HOLDS(condition) _Static_assert(condition, #condition)
#endif
#define SIZE(type, bytes) HOLDS(sizeof(type) == (bytes))
#define AT(type, field, bytes) HOLDS(offsetof(type, field) == (bytes))
#define IS(name, value) HOLDS((name) == (value))

/* clang-format off */

SIZE(isogate_str, 16);
AT(isogate_str, ptr, 0);
AT(isogate_str, len, 8);

SIZE(isogate_pair, 32);
AT(isogate_pair, key, 0);
AT(isogate_pair, value, 16);

SIZE(isogate_error, 1024);
AT(isogate_error, struct_size, 0);
AT(isogate_error, os_errno, 4);
AT(isogate_error, message, 8);

SIZE(isogate_call, 32);
AT(isogate_call, struct_size, 0);
AT(isogate_call, cancel_fd, 4);
AT(isogate_call, deadline_ns, 8);
AT(isogate_call, request_id, 16);

SIZE(isogate_limit, 16);
AT(isogate_limit, id, 0);
AT(isogate_limit, reserved, 4);
AT(isogate_limit, value, 8);

SIZE(isogate_sandbox_spec, 112);
AT(isogate_sandbox_spec, struct_size, 0);
AT(isogate_sandbox_spec, flags, 4);
AT(isogate_sandbox_spec, egress, 8);
AT(isogate_sandbox_spec, reserved, 12);
AT(isogate_sandbox_spec, sandbox_id, 16);
AT(isogate_sandbox_spec, tenant, 32);
AT(isogate_sandbox_spec, agent_id, 48);
AT(isogate_sandbox_spec, handle, 64);
AT(isogate_sandbox_spec, limits, 80);
AT(isogate_sandbox_spec, limit_count, 88);
AT(isogate_sandbox_spec, options, 96);
AT(isogate_sandbox_spec, option_count, 104);

SIZE(isogate_sandbox_info, 256);
AT(isogate_sandbox_info, struct_size, 0);
AT(isogate_sandbox_info, flags, 4);
AT(isogate_sandbox_info, isolation, 8);
AT(isogate_sandbox_info, uid, 12);
AT(isogate_sandbox_info, handle, 16);

SIZE(isogate_record, 40);
AT(isogate_record, struct_size, 0);
AT(isogate_record, flags, 4);
AT(isogate_record, sandbox_id, 8);
AT(isogate_record, handle, 24);

SIZE(isogate_record_sink, 16);
AT(isogate_record_sink, ctx, 0);
AT(isogate_record_sink, add, 8);

SIZE(isogate_exec_request, 128);
AT(isogate_exec_request, struct_size, 0);
AT(isogate_exec_request, flags, 4);
AT(isogate_exec_request, exec_id, 8);
AT(isogate_exec_request, argv, 24);
AT(isogate_exec_request, argc, 32);
AT(isogate_exec_request, env, 40);
AT(isogate_exec_request, envc, 48);
AT(isogate_exec_request, cwd, 56);
AT(isogate_exec_request, user, 72);
AT(isogate_exec_request, stdin_fd, 88);
AT(isogate_exec_request, stdout_fd, 92);
AT(isogate_exec_request, stderr_fd, 96);
AT(isogate_exec_request, control_fd, 100);
AT(isogate_exec_request, limits, 104);
AT(isogate_exec_request, limit_count, 112);
AT(isogate_exec_request, rows, 120);
AT(isogate_exec_request, cols, 122);
AT(isogate_exec_request, reserved, 124);

SIZE(isogate_exec_result, 48);
AT(isogate_exec_result, struct_size, 0);
AT(isogate_exec_result, flags, 4);
AT(isogate_exec_result, exit_code, 8);
AT(isogate_exec_result, term_signal, 12);
AT(isogate_exec_result, os_errno, 16);
AT(isogate_exec_result, isolation, 20);
AT(isogate_exec_result, wall_ns, 24);
AT(isogate_exec_result, cpu_ns, 32);
AT(isogate_exec_result, max_rss_bytes, 40);

SIZE(isogate_control, 16);
AT(isogate_control, type, 0);
AT(isogate_control, a, 4);
AT(isogate_control, b, 8);
AT(isogate_control, reserved, 12);

SIZE(isogate_file_request, 88);
AT(isogate_file_request, struct_size, 0);
AT(isogate_file_request, scope, 4);
AT(isogate_file_request, flags, 8);
AT(isogate_file_request, mode, 12);
AT(isogate_file_request, path, 16);
AT(isogate_file_request, path_to, 32);
AT(isogate_file_request, user, 48);
AT(isogate_file_request, offset, 64);
AT(isogate_file_request, limit, 72);
AT(isogate_file_request, fd, 80);
AT(isogate_file_request, complete_fd, 84);

SIZE(isogate_entry, 48);
AT(isogate_entry, struct_size, 0);
AT(isogate_entry, type, 4);
AT(isogate_entry, mode, 8);
AT(isogate_entry, reserved, 12);
AT(isogate_entry, size, 16);
AT(isogate_entry, mtime_ns, 24);
AT(isogate_entry, name, 32);

SIZE(isogate_entry_sink, 16);
AT(isogate_entry_sink, ctx, 0);
AT(isogate_entry_sink, add, 8);

SIZE(isogate_change, 16);
AT(isogate_change, size, 0);
AT(isogate_change, type, 4);
AT(isogate_change, flags, 8);
AT(isogate_change, path_length, 12);
AT(isogate_change, from_length, 14);

SIZE(isogate_evidence, 432);
AT(isogate_evidence, struct_size, 0);
AT(isogate_evidence, flags, 4);
AT(isogate_evidence, uid, 8);
AT(isogate_evidence, gid, 12);
AT(isogate_evidence, no_new_privs, 16);
AT(isogate_evidence, seccomp_mode, 20);
AT(isogate_evidence, cap_inheritable, 24);
AT(isogate_evidence, cap_permitted, 32);
AT(isogate_evidence, cap_effective, 40);
AT(isogate_evidence, cap_bounding, 48);
AT(isogate_evidence, cap_ambient, 56);
AT(isogate_evidence, ns_mnt, 64);
AT(isogate_evidence, ns_pid, 72);
AT(isogate_evidence, ns_net, 80);
AT(isogate_evidence, ns_ipc, 88);
AT(isogate_evidence, ns_uts, 96);
AT(isogate_evidence, ns_user, 104);
AT(isogate_evidence, ns_cgroup, 112);
AT(isogate_evidence, visible_processes, 120);
AT(isogate_evidence, limit_count, 128);
AT(isogate_evidence, reserved, 132);
AT(isogate_evidence, limits, 136);
AT(isogate_evidence, boot_id, 392);

SIZE(isogate_evidence_request, 40);
AT(isogate_evidence_request, struct_size, 0);
AT(isogate_evidence_request, gateway_port, 4);
AT(isogate_evidence_request, gateway_address, 8);
AT(isogate_evidence_request, gateway_listeners, 24);

SIZE(isogate_connect_request, 24);
AT(isogate_connect_request, struct_size, 0);
AT(isogate_connect_request, flags, 4);
AT(isogate_connect_request, port, 8);
AT(isogate_connect_request, stream_fd, 12);
AT(isogate_connect_request, ready_fd, 16);
AT(isogate_connect_request, reserved, 20);

SIZE(isogate_shared_dir, 32);
AT(isogate_shared_dir, prefix, 0);
AT(isogate_shared_dir, path, 16);

SIZE(isogate_host, 152);
AT(isogate_host, struct_size, 0);
AT(isogate_host, abi_minor, 4);
AT(isogate_host, flags, 8);
AT(isogate_host, reserved, 12);
AT(isogate_host, ctx, 16);
AT(isogate_host, log, 24);
AT(isogate_host, get_extension, 32);
AT(isogate_host, instance, 40);
AT(isogate_host, backend_name, 56);
AT(isogate_host, sandboxes_dir, 72);
AT(isogate_host, uids_dir, 88);
AT(isogate_host, shell, 104);
AT(isogate_host, toolchain_path, 120);
AT(isogate_host, shared_dirs, 136);
AT(isogate_host, shared_dir_count, 144);

SIZE(isogate_probe, 1024);
AT(isogate_probe, struct_size, 0);
AT(isogate_probe, verdict, 4);
AT(isogate_probe, isolation, 8);
AT(isogate_probe, locality, 12);
AT(isogate_probe, capabilities, 16);
AT(isogate_probe, detail, 24);

SIZE(isogate_backend_api, 152);
AT(isogate_backend_api, struct_size, 0);
AT(isogate_backend_api, reserved, 4);
AT(isogate_backend_api, create, 8);
AT(isogate_backend_api, destroy, 16);
AT(isogate_backend_api, probe, 24);
AT(isogate_backend_api, open, 32);
AT(isogate_backend_api, close, 40);
AT(isogate_backend_api, enumerate, 48);
AT(isogate_backend_api, exec, 56);
AT(isogate_backend_api, read, 64);
AT(isogate_backend_api, write, 72);
AT(isogate_backend_api, list, 80);
AT(isogate_backend_api, stat, 88);
AT(isogate_backend_api, mkdir, 96);
AT(isogate_backend_api, move, 104);
AT(isogate_backend_api, remove, 112);
AT(isogate_backend_api, evidence, 120);
AT(isogate_backend_api, get_extension, 128);
AT(isogate_backend_api, watch, 136);
AT(isogate_backend_api, connect, 144);

SIZE(isogate_orphans, 24);
AT(isogate_orphans, struct_size, 0);
AT(isogate_orphans, reserved, 4);
AT(isogate_orphans, list, 8);
AT(isogate_orphans, remove, 16);

SIZE(isogate_disk_use, 40);
AT(isogate_disk_use, struct_size, 0);
AT(isogate_disk_use, flags, 4);
AT(isogate_disk_use, used_bytes, 8);
AT(isogate_disk_use, limit_bytes, 16);
AT(isogate_disk_use, used_files, 24);
AT(isogate_disk_use, limit_files, 32);

SIZE(isogate_disk, 16);
AT(isogate_disk, struct_size, 0);
AT(isogate_disk, reserved, 4);
AT(isogate_disk, use, 8);

SIZE(isogate_kept_exec, 20);
AT(isogate_kept_exec, struct_size, 0);
AT(isogate_kept_exec, grace_sec, 4);
AT(isogate_kept_exec, detach_fd, 8);
AT(isogate_kept_exec, input_end_fd, 12);
AT(isogate_kept_exec, state_fd, 16);

SIZE(isogate_kept_state, 24);
AT(isogate_kept_state, stdout_offset, 0);
AT(isogate_kept_state, stderr_offset, 8);
AT(isogate_kept_state, flags, 16);
AT(isogate_kept_state, reserved, 20);

SIZE(isogate_kept_execs, 24);
AT(isogate_kept_execs, struct_size, 0);
AT(isogate_kept_execs, reserved, 4);
AT(isogate_kept_execs, start, 8);
AT(isogate_kept_execs, rejoin, 16);

SIZE(isogate_plugin, 96);
AT(isogate_plugin, magic, 0);
AT(isogate_plugin, abi_major, 4);
AT(isogate_plugin, abi_minor, 6);
AT(isogate_plugin, struct_size, 8);
AT(isogate_plugin, flags, 12);
AT(isogate_plugin, isolation, 16);
AT(isogate_plugin, locality, 20);
AT(isogate_plugin, capabilities, 24);
AT(isogate_plugin, linux_capabilities, 32);
AT(isogate_plugin, id, 40);
AT(isogate_plugin, version, 48);
AT(isogate_plugin, summary, 56);
AT(isogate_plugin, vendor, 64);
AT(isogate_plugin, license, 72);
AT(isogate_plugin, config_schema_json, 80);
AT(isogate_plugin, api, 88);

IS(ISOGATE_ABI_MAGIC, 0x31475349u);
IS(ISOGATE_ABI_MAJOR, 1u);
IS(ISOGATE_ABI_MINOR, 0u);
IS(ISOGATE_OK, 0);
IS(ISOGATE_INVALID_ARGUMENT, 1);
IS(ISOGATE_NOT_FOUND, 2);
IS(ISOGATE_ALREADY_EXISTS, 3);
IS(ISOGATE_PERMISSION_DENIED, 4);
IS(ISOGATE_UNSUPPORTED, 5);
IS(ISOGATE_UNAVAILABLE, 6);
IS(ISOGATE_CANCELLED, 7);
IS(ISOGATE_RESOURCE_EXHAUSTED, 8);
IS(ISOGATE_IO, 9);
IS(ISOGATE_INTERNAL, 10);
IS(ISOGATE_LOST, 11);
IS(ISOGATE_SANDBOX_LOST, 12);
IS(ISOGATE_IS_DIRECTORY, 13);
IS(ISOGATE_NOT_REGULAR, 14);
IS(ISOGATE_NO_SANDBOX, 15);
IS(ISOGATE_LIMIT_MEMORY_BYTES, 1u);
IS(ISOGATE_LIMIT_CPU_MILLIS, 2u);
IS(ISOGATE_LIMIT_PIDS, 3u);
IS(ISOGATE_LIMIT_DISK_BYTES, 4u);
IS(ISOGATE_EGRESS_UNSET, 0u);
IS(ISOGATE_EGRESS_DENY, 1u);
IS(ISOGATE_EGRESS_PROXY, 2u);
IS(ISOGATE_EGRESS_ALLOW, 3u);
IS(ISOGATE_OPEN_ATTACH_ONLY, (1u << 0));
IS(ISOGATE_OPEN_LIMITS_BEST_EFFORT, (1u << 1));
IS(ISOGATE_OPEN_KNOWN, (1u << 2));
IS(ISOGATE_OPEN_RUNNING_ONLY, (1u << 3));
IS(ISOGATE_SANDBOX_ATTACHED, (1u << 0));
IS(ISOGATE_SANDBOX_RUNS, (1u << 1));
IS(ISOGATE_SANDBOX_FRESH, (1u << 2));
IS(ISOGATE_CLOSE_DETACH, 0u);
IS(ISOGATE_CLOSE_STOP, 1u);
IS(ISOGATE_CLOSE_PURGE, 2u);
IS(ISOGATE_EXEC_PTY, (1u << 0));
IS(ISOGATE_EXEC_LIMITS_SAMPLED, (1u << 1));
IS(ISOGATE_EXEC_MERGE_STDERR, (1u << 2));
IS(ISOGATE_RESULT_OOM_KILLED, (1u << 0));
IS(ISOGATE_RESULT_KILLED, (1u << 1));
IS(ISOGATE_RESULT_NOT_STARTED, (1u << 2));
IS(ISOGATE_RESULT_PROVEN, (1u << 3));
IS(ISOGATE_RESULT_LEFT_BEHIND, (1u << 4));
IS(ISOGATE_RESULT_PIDS_EXCEEDED, (1u << 5));
IS(ISOGATE_CONTROL_SIGNAL, 1u);
IS(ISOGATE_CONTROL_RESIZE, 2u);
IS(ISOGATE_SCOPE_WORKSPACE, 0u);
IS(ISOGATE_SCOPE_SANDBOX, 1u);
IS(ISOGATE_FILE_APPEND, (1u << 0));
IS(ISOGATE_FILE_DURABLE, (1u << 1));
IS(ISOGATE_FILE_EXCLUSIVE, (1u << 2));
IS(ISOGATE_FILE_PARENTS, (1u << 3));
IS(ISOGATE_FILE_RECURSIVE, (1u << 4));
IS(ISOGATE_FILE_MODE_GIVEN, (1u << 5));
IS(ISOGATE_FILE_REPLACE, (1u << 6));
IS(ISOGATE_ENTRY_REGULAR, 1u);
IS(ISOGATE_ENTRY_DIRECTORY, 2u);
IS(ISOGATE_ENTRY_SYMLINK, 3u);
IS(ISOGATE_ENTRY_OTHER, 4u);
IS(ISOGATE_CHANGE_READY, 1u);
IS(ISOGATE_CHANGE_CREATED, 2u);
IS(ISOGATE_CHANGE_WRITTEN, 3u);
IS(ISOGATE_CHANGE_REMOVED, 4u);
IS(ISOGATE_CHANGE_RENAMED, 5u);
IS(ISOGATE_CHANGE_ATTRIBUTES, 6u);
IS(ISOGATE_CHANGE_OVERFLOW, 7u);
IS(ISOGATE_CHANGE_DIRECTORY, (1u << 0));
IS(ISOGATE_CHANGE_MAX_PATH, 4095u);
IS(ISOGATE_EVIDENCE_MEASURED, (1u << 0));
IS(ISOGATE_EVIDENCE_NETWORK, (1u << 1));
IS(ISOGATE_EVIDENCE_REACHED_GATEWAY, (1u << 2));
IS(ISOGATE_EVIDENCE_REACHED_METADATA, (1u << 3));
IS(ISOGATE_EVIDENCE_LIMITS_MAX, 16u);
IS(ISOGATE_SIZE_UNKNOWN, UINT64_MAX);
IS(ISOGATE_LOG_DEBUG, 0u);
IS(ISOGATE_LOG_INFO, 1u);
IS(ISOGATE_LOG_WARN, 2u);
IS(ISOGATE_LOG_ERROR, 3u);
IS(ISOGATE_HOST_ALLOW_UNISOLATED, (1u << 0));
IS(ISOGATE_HOST_PROBE_ONLY, (1u << 1));
IS(ISOGATE_HOST_MANY_TENANTS, (1u << 2));
IS(ISOGATE_HOST_LIMITS_BEST_EFFORT, (1u << 3));
IS(ISOGATE_ISOLATION_NONE, 0u);
IS(ISOGATE_ISOLATION_NAMESPACE, 10u);
IS(ISOGATE_ISOLATION_CONTAINER, 20u);
IS(ISOGATE_ISOLATION_VM, 30u);
IS(ISOGATE_LOCALITY_PROCESS, 1u);
IS(ISOGATE_LOCALITY_HOST, 2u);
IS(ISOGATE_LOCALITY_DAEMON, 3u);
IS(ISOGATE_LOCALITY_CLUSTER, 4u);
IS(ISOGATE_LOCALITY_GATEWAY, 5u);
IS(ISOGATE_CAP_PTY, (1ull << 0));
IS(ISOGATE_CAP_USER, (1ull << 1));
IS(ISOGATE_CAP_LIMIT_MEMORY, (1ull << 2));
IS(ISOGATE_CAP_LIMIT_CPU, (1ull << 3));
IS(ISOGATE_CAP_LIMIT_PIDS, (1ull << 4));
IS(ISOGATE_CAP_SANDBOX_LIMIT_DISK, (1ull << 5));
IS(ISOGATE_CAP_SCOPE_SANDBOX, (1ull << 6));
IS(ISOGATE_CAP_EGRESS_DENY, (1ull << 7));
IS(ISOGATE_CAP_UID_PER_SANDBOX, (1ull << 8));
IS(ISOGATE_CAP_PERSISTENT, (1ull << 9));
IS(ISOGATE_CAP_EVIDENCE, (1ull << 10));
IS(ISOGATE_CAP_PROVEN_EXECS, (1ull << 11));
IS(ISOGATE_CAP_LIMIT_MEMORY_SAMPLED, (1ull << 12));
IS(ISOGATE_CAP_LIMIT_CPU_SAMPLED, (1ull << 13));
IS(ISOGATE_CAP_LIMIT_PIDS_SAMPLED, (1ull << 14));
IS(ISOGATE_CAP_SANDBOX_LIMIT_MEMORY, (1ull << 15));
IS(ISOGATE_CAP_SANDBOX_LIMIT_CPU, (1ull << 16));
IS(ISOGATE_CAP_SANDBOX_LIMIT_PIDS, (1ull << 17));
IS(ISOGATE_CAP_MERGE_STDERR, (1ull << 19));
IS(ISOGATE_CAP_IMAGE, (1ull << 22));
IS(ISOGATE_CAP_WATCH, (1ull << 20));
IS(ISOGATE_CAP_PORTS, (1ull << 21));
IS(ISOGATE_CAP_KEPT_EXECS, (1ull << 23));
IS(ISOGATE_CAP_SANDBOX_DISK_ADVISORY, (1ull << 18));
IS(ISOGATE_PROBE_AVAILABLE, 1u);
IS(ISOGATE_PROBE_DEGRADED, 2u);
IS(ISOGATE_PROBE_UNAVAILABLE, 3u);
IS(ISOGATE_PLUGIN_RUNS_AS_ROOT, (1u << 0));
IS(ISOGATE_ORPHANS_RUNNING, 1u);
IS(ISOGATE_DISK_ENFORCED, (1u << 0));
IS(ISOGATE_DISK_EXACT, (1u << 1));
IS(ISOGATE_KEPT_STDIN_OPEN, (1u << 0));
/* clang-format on */
