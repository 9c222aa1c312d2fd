/* A backend for tests, in plain C: argv[0], the agent's name or the path of each call selects
 * what it does. Compiled many times, each with one macro that makes it older, newer or broken (CMakeLists.txt). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef SHORTER
#include "tests/abi/frozen/backend_shorter.h"
#else
#include "isogate/backend.h"
#include "isogate/orphans.h"
#endif

#ifndef MAGIC
#define MAGIC ISOGATE_ABI_MAGIC
#endif
#ifndef MAJOR
#define MAJOR ISOGATE_ABI_MAJOR
#endif
#ifndef MINOR
#define MINOR 0
#endif
#ifndef ID
#define ID "com.example.fixture"
#endif
#ifndef VERSION
#define VERSION "0.9.1"
#endif
#ifndef ISOLATION
#ifdef SHORTER /* it measures nothing */
#define ISOLATION ISOGATE_ISOLATION_NONE
#else
#define ISOLATION ISOGATE_ISOLATION_NAMESPACE
#endif
#endif
#ifndef LOCALITY
#define LOCALITY ISOGATE_LOCALITY_HOST
#endif
#ifndef PROBE_LOCALITY
#define PROBE_LOCALITY ISOGATE_LOCALITY_HOST
#endif
#ifdef ENDLESS_SCHEMA
#define SCHEMA "{\"allOf\":[{\"$ref\":\"#\"}]}"
#endif
#ifdef DEEP_SCHEMA
#define NESTED4(x) "[[[[" x "]]]]"
#define NESTED16(x) NESTED4(NESTED4(NESTED4(NESTED4(x))))
#define NESTED64(x) NESTED16(NESTED16(NESTED16(NESTED16(x))))
#define SCHEMA "{\"default\":" NESTED64(NESTED64(NESTED64(NESTED64("1")))) "}"
#endif
#ifdef LONG_SCHEMA /* of an enum with a word of 96 KiB */
#define TIMES8(x) x x x x x x x x
#define TIMES32K(x) TIMES8(TIMES8(TIMES8(TIMES8(TIMES8(x)))))
#define SCHEMA                                                                                        \
  "{\"additionalProperties\":false,\"properties\":{\"mode\":{\"enum\":[\"" TIMES32K("\xe2\x82\xac") "\"]}}}"
#endif
#ifndef SCHEMA
#define SCHEMA                                                                     \
  "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{\"trace\":" \
  "{\"type\":\"string\"},\"records\":{\"type\":\"integer\",\"minimum\":0},\"hangs\":{\"type\":\"boolean\"}," \
  "\"short\":{\"type\":\"boolean\"}}}"
#endif
#ifndef FLAGS
#define FLAGS 0
#endif
#ifndef LINUX_CAPABILITIES
#define LINUX_CAPABILITIES 0
#endif
#ifndef CAPABILITIES
#ifdef SHORTER
#define CAPABILITIES ISOGATE_CAP_PTY
#else
#define CAPABILITIES (ISOGATE_CAP_PTY | ISOGATE_CAP_EVIDENCE)
#endif
#endif
#ifndef PROBE_VERDICT
#define PROBE_VERDICT ISOGATE_PROBE_AVAILABLE
#endif
#ifndef PROBE_CAPABILITIES
#define PROBE_CAPABILITIES (CAPABILITIES | 1ull << 63)
#endif
#ifndef API
#ifdef LONGER
#define API &longer.known
#else
#define API &api
#endif
#endif

#ifdef CONSTRUCTOR
static inline void spin(void) {
  while (getpid() > 0) continue;
}
static inline void babble(void) {
  if (write(3, "{}", 2) < 0) abort();
}
static inline void flood(void) {
  static char bytes[65536];
  while (write(3, bytes, sizeof bytes) > 0) continue;
}
__attribute__((constructor)) static void construct(void) { CONSTRUCTOR; }
#endif
#ifdef EXTRA_EXPORT
__attribute__((visibility("default"))) int extra_export(void) { return 1; }
#endif
#ifdef UNDEFINED
int defined_nowhere(void);
#endif

struct isogate_backend {
  const isogate_host* host;
  char trace[512];
  int records;
  int hangs; /* in destroy() */
};

struct isogate_sandbox {
  isogate_backend* backend;
  char agent[64];
  atomic_int calls, closes;
};

static atomic_int opening, opened_twice_at_once, opens, running;

static int is(isogate_str text, const char* word) {
  return text.len == strlen(word) && memcmp(text.ptr, word, text.len) == 0;
}

static long number(isogate_str text) {
  char digits[32] = {0};
  memcpy(digits, text.ptr, text.len < 31 ? text.len : 31);
  return atol(digits);
}

static unsigned long long limit_of(const isogate_limit* limits, uint64_t count, uint32_t id) {
  for (uint64_t i = 0; i < count; ++i)
    if (limits[i].id == id) return limits[i].value;
  return 0;
}

static isogate_status fail(isogate_error* error, isogate_status status, const char* message) {
  error->os_errno = 5;
  snprintf(error->message, sizeof error->message, "%s", message);
  return status;
}

static void trace(isogate_backend* backend, const char* line) {
  int fd = backend->trace[0] ? open(backend->trace, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644) : -1;
  if (fd < 0) return;
  if (write(fd, line, strlen(line)) < 0) abort();
  close(fd);
}

/* True when the call was cancelled meanwhile. */
static int sleep_ms(const isogate_call* call, int ms) {
  struct pollfd cancel = {call->cancel_fd, POLLIN, 0};
  int n;
  do n = poll(&cancel, 1, ms);
  while (n < 0 && errno == EINTR);
  return n > 0;
}

static isogate_status fixture_create(const isogate_host* host, isogate_str config, isogate_backend** out,
                                     isogate_error* error) {
  isogate_backend* made = calloc(1, sizeof *made);
  char text[1024] = {0};
  const char* found;
  if (config.len >= sizeof text) return fail(error, ISOGATE_INVALID_ARGUMENT, "too much configuration");
  memcpy(text, config.ptr, config.len);
  if (strstr(text, "\"short\":true") != NULL) {
    free(made);
    return fail(error, ISOGATE_RESOURCE_EXHAUSTED, "out of memory");
  }
  made->host = host;
  if ((found = strstr(text, "\"trace\":\"")) != NULL) sscanf(found + 9, "%511[^\"]", made->trace);
  made->hangs = strstr(text, "\"hangs\":true") != NULL;
  if ((found = strstr(text, "\"records\":")) != NULL) made->records = atoi(found + 10);
  host->log(host->ctx, ISOGATE_LOG_INFO, (isogate_str){"fixture\ncreated", 15});
  *out = made;
  return ISOGATE_OK;
}

static void fixture_destroy(isogate_backend* backend) {
  trace(backend, "destroy\n");
  while (backend->hangs) pause();
  free(backend);
}

static isogate_status fixture_probe(isogate_backend* backend, const isogate_call* call, isogate_probe* out,
                                    isogate_error* error) {
  (void)backend, (void)call, (void)error;
  out->verdict = PROBE_VERDICT;
  out->isolation = ISOLATION;
  out->locality = PROBE_LOCALITY;
  out->capabilities = PROBE_CAPABILITIES;
  strcpy(out->detail, "ready\tto run");
  return ISOGATE_OK;
}

static isogate_status fixture_open(isogate_backend* backend, const isogate_call* call,
                                   const isogate_sandbox_spec* spec, isogate_sandbox** out,
                                   isogate_sandbox_info* info, isogate_error* error) {
  if (is(spec->agent_id, "refused")) return fail(error, ISOGATE_UNAVAILABLE, "no sandbox today");
  if (is(spec->agent_id, "null")) return ISOGATE_OK;
  if (atomic_fetch_add(&opening, 1) != 0) opened_twice_at_once = 1;
  if (is(spec->agent_id, "slow") && sleep_ms(call, 200)) {
    --opening;
    return fail(error, ISOGATE_CANCELLED, "cancelled");
  }
  --opening;
  ++opens;
  isogate_sandbox* made = calloc(1, sizeof *made);
  made->backend = backend;
  memcpy(made->agent, spec->agent_id.ptr, spec->agent_id.len < 63 ? spec->agent_id.len : 63);
  info->isolation = is(spec->agent_id, "liar") || is(spec->agent_id, "sticky-liar")
                        ? ISOGATE_ISOLATION_VM
                        : ISOLATION;
  info->uid = 12345;
#ifndef SHORTER
  snprintf(info->handle, sizeof info->handle, "limit-%llu-egress-%u",
           limit_of(spec->limits, spec->limit_count, ISOGATE_LIMIT_PIDS), spec->egress);
#endif
  *out = made;
  return ISOGATE_OK;
}

static isogate_status fixture_close(isogate_sandbox* sandbox, const isogate_call* call, uint32_t mode,
                                    isogate_error* error) {
  char line[96];
  (void)call;
  if (sandbox->calls != 0) abort();
  if (strncmp(sandbox->agent, "sticky", 6) == 0 && sandbox->closes++ == 0)
    return fail(error, ISOGATE_IO, "not yet");
  const int gone = strcmp(sandbox->agent, "gone") == 0;
  snprintf(line, sizeof line, "close %s %u\n", sandbox->agent, mode);
  trace(sandbox->backend, line);
  free(sandbox);
  return gone ? fail(error, ISOGATE_NO_SANDBOX, "its container ended") : ISOGATE_OK;
}

static isogate_status fixture_enumerate(isogate_backend* backend, const isogate_call* call,
                                        const isogate_record_sink* sink, isogate_error* error) {
  (void)call, (void)error;
  for (int i = 0; i < backend->records; ++i) {
    char id[31], handle[32];
    isogate_record record = {sizeof record, i == 1 ? ~0u : 0u, {id, 30}, {handle, 0}};
    snprintf(id, sizeof id, "isg-%026d", i);
    record.handle.len = (uint64_t)snprintf(handle, sizeof handle, "handle-%d", i);
    isogate_status status = sink->add(sink->ctx, &record);
    if (status != ISOGATE_OK) return status;
  }
  return ISOGATE_OK;
}

static isogate_status tell(const isogate_exec_request* request, const char* file) {
  char text[8192];
  int fd = open(file, O_RDONLY | O_CLOEXEC);
  ssize_t size = fd < 0 ? 0 : read(fd, text, sizeof text);
  if (fd >= 0) close(fd);
  return write(request->stdout_fd, text, (size_t)size) == size ? ISOGATE_OK : ISOGATE_IO;
}

static isogate_status run(const isogate_call* call, const isogate_exec_request* request,
                          isogate_exec_result* result, isogate_error* error) {
  isogate_str word = request->argv[0];
  isogate_str argument = request->argc > 1 ? request->argv[1] : (isogate_str){"", 0};
  if (is(word, "sleep")) {
    if (sleep_ms(call, (int)number(argument)))
      result->flags = ISOGATE_RESULT_KILLED, result->term_signal = SIGKILL;
  } else if (is(word, "stubborn")) {
    usleep((useconds_t)number(argument) * 1000);
  } else if (is(word, "not-started")) {
    result->flags = ISOGATE_RESULT_NOT_STARTED;
    result->exit_code = (int32_t)number(argument);
  } else if (is(word, "exit")) {
    result->exit_code = (int32_t)number(argument);
  } else if (is(word, "signal")) {
    result->term_signal = (int32_t)number(argument);
  } else if (is(word, "endless")) {
    result->wall_ns = result->cpu_ns = result->max_rss_bytes = UINT64_MAX;
  } else if (is(word, "crash")) {
    raise(SIGSEGV);
  } else if (is(word, "fail")) {
    return fail(error, (isogate_status)number(argument), "as asked");
  } else if (is(word, "silent")) {
    return ISOGATE_IO;
  } else if (is(word, "garble")) {
    memset(error->message, 0xff, sizeof error->message);
    error->message[3] = '\n';
    return ISOGATE_IO;
  } else if (is(word, "status")) {
    return tell(request, "/proc/self/status");
  } else if (is(word, "limits")) {
    return tell(request, "/proc/self/limits");
  } else if (is(word, "counters")) {
    dprintf(request->stdout_fd, "opens=%d twice=%d running=%d", opens, opened_twice_at_once, running);
  } else {
    result->exit_code = 127;
  }
  return ISOGATE_OK;
}

static isogate_status fixture_exec(isogate_sandbox* sandbox, const isogate_call* call,
                                   const isogate_exec_request* request, isogate_exec_result* result,
                                   isogate_error* error) {
  ++sandbox->calls;
  ++running;
  isogate_status status = run(call, request, result, error);
  --running;
  --sandbox->calls;
  return status;
}

static isogate_status fixture_read(isogate_sandbox* sandbox, const isogate_call* call,
                                   const isogate_file_request* request, isogate_entry* entry,
                                   isogate_error* error) {
  (void)sandbox, (void)call, (void)error;
  entry->type = is(request->path, "as-directory") ? ISOGATE_ENTRY_DIRECTORY : ISOGATE_ENTRY_REGULAR;
  entry->size = request->path.len;
  if (is(request->path, "vast")) entry->size = 1ull << 63;
  if (is(request->path, "generated")) entry->size = ISOGATE_SIZE_UNKNOWN;
  return write(request->fd, request->path.ptr, request->path.len) < 0 ? ISOGATE_IO : ISOGATE_OK;
}

static isogate_status fixture_write(isogate_sandbox* sandbox, const isogate_call* call,
                                    const isogate_file_request* request, uint64_t* written,
                                    isogate_error* error) {
  char buffer[4096];
  (void)sandbox;
  for (*written = 0;;) {
    struct pollfd watch[2] = {{call->cancel_fd, POLLIN, 0}, {request->fd, POLLIN, 0}};
    if (poll(watch, 2, -1) < 0) continue;
    if (watch[0].revents != 0) return fail(error, ISOGATE_CANCELLED, "the body was cut off");
    ssize_t n = read(request->fd, buffer, sizeof buffer);
    if (n <= 0) return ISOGATE_OK;
    *written += (uint64_t)n;
  }
}

static isogate_status fixture_list(isogate_sandbox* sandbox, const isogate_call* call,
                                   const isogate_file_request* request, const isogate_entry_sink* sink,
                                   isogate_error* error) {
  (void)sandbox, (void)call;
  if (is(request->path, "evil")) {
    isogate_entry entry = {sizeof entry, ISOGATE_ENTRY_REGULAR, 0644, 0, 1, 2, {"../../x", 7}};
    return sink->add(sink->ctx, &entry);
  }
  if (is(request->path, "nested") || is(request->path, "nameless")) {
    isogate_entry entry = {sizeof entry, ISOGATE_ENTRY_REGULAR, 0644, 0, 1, 2, {"a/b", 3}};
    if (is(request->path, "nameless")) entry.name.len = 0;
    return sink->add(sink->ctx, &entry);
  }
  for (long i = 0, count = number(request->path); i < count; ++i) {
    char name[32];
    isogate_entry entry = {sizeof entry, ISOGATE_ENTRY_REGULAR, 0644, 0, (uint64_t)i, 2, {name, 0}};
    entry.name.len = (uint64_t)snprintf(name, sizeof name, "file-%ld", i);
    isogate_status status = sink->add(sink->ctx, &entry);
    if (status != ISOGATE_OK) return status;
  }
  if (memchr(request->path.ptr, '+', request->path.len) != NULL) {
    const isogate_status status = fail(error, ISOGATE_RESOURCE_EXHAUSTED, "some are too deep");
    error->os_errno = ENAMETOOLONG;
    return status;
  }
  return ISOGATE_OK;
}

static isogate_status fixture_stat(isogate_sandbox* sandbox, const isogate_call* call,
                                   const isogate_file_request* request, isogate_entry* entry,
                                   isogate_error* error) {
  (void)sandbox, (void)call;
  if (is(request->path, "gone")) return fail(error, ISOGATE_NO_SANDBOX, "the container ended");
  if (is(request->path, "missing"))
    return fail(error, ISOGATE_NOT_FOUND, "cannot look at `missing`: not there");
  entry->type = is(request->path, "odd") ? 77 : ISOGATE_ENTRY_DIRECTORY;
  if (is(request->path, "generated")) entry->type = ISOGATE_ENTRY_REGULAR, entry->size = ISOGATE_SIZE_UNKNOWN;
  entry->mode = 0755;
  return ISOGATE_OK;
}

#ifndef SHORTER
static isogate_status fixture_list_orphans(isogate_backend* backend, const isogate_call* call,
                                           const isogate_record_sink* sink, isogate_error* error) {
  const isogate_record record = {
      sizeof record, ISOGATE_SANDBOX_RUNS, {"isg-lostlostlostlostlostlostlo", 30}, {"container 1", 11}};
  (void)backend, (void)call, (void)error;
  return sink->add(sink->ctx, &record);
}

static isogate_status fixture_remove_orphan(isogate_backend* backend, const isogate_call* call,
                                            isogate_str sandbox_id, uint32_t flags, isogate_error* error) {
  (void)backend, (void)call;
  if (is(sandbox_id, "isg-lostlostlostlostlostlostlo"))
    return (flags & ISOGATE_ORPHANS_RUNNING) != 0 ? ISOGATE_OK
                                                  : fail(error, ISOGATE_INVALID_ARGUMENT, "it runs");
  return fail(error, ISOGATE_NOT_FOUND, "nothing is left of it");
}

#ifdef SHORT_EXTENSION /* from before it had remove() */
#define ORPHANS_SIZE offsetof(isogate_orphans, remove)
#else
#define ORPHANS_SIZE sizeof(isogate_orphans)
#endif
static const isogate_orphans orphans = {ORPHANS_SIZE, 0, fixture_list_orphans, fixture_remove_orphan};

static const void* fixture_get_extension(isogate_backend* backend, const char* id) {
  (void)backend;
  if (strcmp(id, ISOGATE_ORPHANS_EXTENSION) == 0) return &orphans;
  return strcmp(id, "com.example.known/1") == 0 ? "known" : NULL;
}

static isogate_status fixture_evidence(isogate_sandbox* sandbox, const isogate_call* call,
                                       const isogate_evidence_request* request, isogate_evidence* out,
                                       isogate_error* error) {
  (void)sandbox, (void)call, (void)error;
  out->flags = ISOGATE_EVIDENCE_MEASURED;
  out->uid = request->gateway_port;
  strcpy(out->boot_id, "boot");
  out->limits[out->limit_count++] = (isogate_limit){ISOGATE_LIMIT_PIDS, 0, 7};
  out->limits[out->limit_count++] =
      (isogate_limit){request->gateway_port == 1 ? ISOGATE_LIMIT_PIDS : 4000, 0, 8};
  if (request->gateway_port == 2) out->limit_count = ISOGATE_EVIDENCE_LIMITS_MAX + 1;
  return ISOGATE_OK;
}
#endif

#ifdef LONGER /* than this header: a later version appended to it */
static const struct {
  isogate_backend_api known;
  void (*unknown)(void);
} longer = {{
                .struct_size = sizeof longer,
#else
static const isogate_backend_api api = {
    .struct_size = sizeof api,
#endif
#ifndef WITHOUT_CREATE
                .create = fixture_create,
#endif
#ifndef WITHOUT_DESTROY
                .destroy = fixture_destroy,
#endif
#ifndef WITHOUT_PROBE
                .probe = fixture_probe,
#endif
#ifndef WITHOUT_OPEN
                .open = fixture_open,
#endif
#ifndef WITHOUT_CLOSE
                .close = fixture_close,
#endif
#ifndef WITHOUT_ENUMERATE
                .enumerate = fixture_enumerate,
#endif
#ifndef WITHOUT_EXEC
                .exec = fixture_exec,
#endif
#ifndef WITHOUT_READ
                .read = fixture_read,
#endif
#ifndef WITHOUT_WRITE
                .write = fixture_write,
#endif
#ifndef WITHOUT_LIST
                .list = fixture_list,
#endif
#ifndef WITHOUT_STAT
                .stat = fixture_stat,
#endif
#ifndef SHORTER
                .evidence = fixture_evidence,
                .get_extension = fixture_get_extension,
#endif
#ifdef LONGER
            },
            NULL};
#else
};
#endif

#ifdef SHORT_DESCRIPTOR
#define DESCRIPTOR_SIZE offsetof(isogate_plugin, api)
#else
#define DESCRIPTOR_SIZE sizeof(isogate_plugin)
#endif

static const isogate_plugin plugin = {
    .magic = MAGIC,
    .abi_major = MAJOR,
    .abi_minor = MINOR,
    .struct_size = DESCRIPTOR_SIZE,
    .flags = FLAGS,
    .isolation = ISOLATION,
    .locality = LOCALITY,
    .capabilities = CAPABILITIES,
    .linux_capabilities = LINUX_CAPABILITIES,
    .id = ID,
    .version = VERSION,
    .summary = "for tests",
    .vendor = "",
    .license = "Apache-2.0",
    .config_schema_json = SCHEMA,
    .api = API,
};

#ifndef WITHOUT_ENTRY
__attribute__((visibility("default"))) const isogate_plugin* isogate_plugin_entry(uint32_t major,
                                                                                  uint32_t minor) {
  (void)major, (void)minor;
#ifdef UNDEFINED
  if (defined_nowhere()) return NULL;
#endif
#ifdef ENTRY_RETURNS_NULL
  return NULL;
#else
  return &plugin;
#endif
}
#else
__attribute__((visibility("default"))) const isogate_plugin* another_entry(void) { return &plugin; }
#endif
