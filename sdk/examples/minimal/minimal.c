/* The smallest backend in plain C: it runs `true` and `false`, inside its own process, and has no files. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "isogate/backend.h"

struct isogate_backend {
  const isogate_host* host; /* valid until destroy() */
};

struct isogate_sandbox {
  isogate_backend* backend;
};

static int is(isogate_str text, const char* word) {
  return text.len == strlen(word) && memcmp(text.ptr, word, text.len) == 0;
}

static isogate_status fail(isogate_error* error, isogate_status status, const char* message) {
  error->os_errno = 0;
  snprintf(error->message, sizeof error->message, "%s", message);
  return status;
}

static isogate_status create(const isogate_host* host, isogate_str config, isogate_backend** out,
                             isogate_error* error) {
  (void)config;
  isogate_backend* made = calloc(1, sizeof *made);
  if (made == NULL) return fail(error, ISOGATE_RESOURCE_EXHAUSTED, "out of memory");
  made->host = host;
  *out = made;
  return ISOGATE_OK;
}

static void destroy(isogate_backend* backend) { free(backend); }

/* Version 1.0 has all these fields; for later ones compare out->struct_size first. */
static isogate_status probe(isogate_backend* backend, const isogate_call* call, isogate_probe* out,
                            isogate_error* error) {
  (void)backend, (void)call, (void)error;
  out->verdict = ISOGATE_PROBE_AVAILABLE;
  out->isolation = ISOGATE_ISOLATION_NONE;
  out->locality = ISOGATE_LOCALITY_PROCESS;
  return ISOGATE_OK;
}

static isogate_status open_sandbox(isogate_backend* backend, const isogate_call* call,
                                   const isogate_sandbox_spec* spec, isogate_sandbox** out,
                                   isogate_sandbox_info* info, isogate_error* error) {
  const uint32_t known = ISOGATE_OPEN_ATTACH_ONLY | ISOGATE_OPEN_LIMITS_BEST_EFFORT | ISOGATE_OPEN_KNOWN;
  (void)call, (void)info;
  if ((spec->flags & ~known) != 0 || spec->reserved != 0)
    return fail(error, ISOGATE_INVALID_ARGUMENT, "the gateway is newer than this plugin");
  if ((spec->flags & ISOGATE_OPEN_ATTACH_ONLY) != 0) /* nothing outlives this process */
    return fail(error, ISOGATE_NO_SANDBOX, "there is no such sandbox");
  if (spec->limit_count != 0 && (spec->flags & ISOGATE_OPEN_LIMITS_BEST_EFFORT) == 0)
    return fail(error, ISOGATE_UNSUPPORTED, "this backend enforces no limits");
  if (spec->option_count != 0) return fail(error, ISOGATE_UNSUPPORTED, "this backend has no options");
  isogate_sandbox* made = calloc(1, sizeof *made);
  if (made == NULL) return fail(error, ISOGATE_RESOURCE_EXHAUSTED, "out of memory");
  made->backend = backend;
  *out = made;
  return ISOGATE_OK;
}

static isogate_status close_sandbox(isogate_sandbox* sandbox, const isogate_call* call, uint32_t mode,
                                    isogate_error* error) {
  (void)call, (void)mode, (void)error;
  free(sandbox);
  return ISOGATE_OK;
}

static isogate_status enumerate(isogate_backend* backend, const isogate_call* call,
                                const isogate_record_sink* sink, isogate_error* error) {
  (void)backend, (void)call, (void)sink, (void)error;
  return ISOGATE_OK; /* nothing outlives this process */
}

static isogate_status exec(isogate_sandbox* sandbox, const isogate_call* call,
                           const isogate_exec_request* request, isogate_exec_result* result,
                           isogate_error* error) {
  (void)sandbox, (void)call;
  if (request->flags != 0 || request->reserved != 0)
    return fail(error, ISOGATE_INVALID_ARGUMENT, "the gateway is newer than this plugin");
  if (request->limit_count != 0) return fail(error, ISOGATE_UNSUPPORTED, "this backend enforces no limits");
  if (is(request->argv[0], "true")) return ISOGATE_OK;
  if (is(request->argv[0], "false")) {
    result->exit_code = 1;
    return ISOGATE_OK;
  }
  dprintf(request->stderr_fd, "isogate: cannot run `%.*s`: No such file or directory\n",
          (int)request->argv[0].len, request->argv[0].ptr);
  result->flags = ISOGATE_RESULT_NOT_STARTED;
  result->exit_code = 127;
  result->os_errno = ENOENT;
  return ISOGATE_OK;
}

static isogate_status no_files(isogate_error* error) {
  return fail(error, ISOGATE_UNSUPPORTED, "this backend has no files");
}

static isogate_status read_file(isogate_sandbox* sandbox, const isogate_call* call,
                                const isogate_file_request* request, isogate_entry* entry,
                                isogate_error* error) {
  (void)sandbox, (void)call, (void)request, (void)entry;
  return no_files(error);
}

static isogate_status write_file(isogate_sandbox* sandbox, const isogate_call* call,
                                 const isogate_file_request* request, uint64_t* written,
                                 isogate_error* error) {
  (void)sandbox, (void)call, (void)request, (void)written;
  return no_files(error);
}

static isogate_status list_directory(isogate_sandbox* sandbox, const isogate_call* call,
                                     const isogate_file_request* request, const isogate_entry_sink* sink,
                                     isogate_error* error) {
  (void)sandbox, (void)call, (void)request, (void)sink;
  return no_files(error);
}

static const isogate_backend_api api = {
    .struct_size = sizeof api,
    .create = create,
    .destroy = destroy,
    .probe = probe,
    .open = open_sandbox,
    .close = close_sandbox,
    .enumerate = enumerate,
    .exec = exec,
    .read = read_file,
    .write = write_file,
    .list = list_directory,
    .stat = read_file,
};

static const isogate_plugin plugin = {
    .magic = ISOGATE_ABI_MAGIC,
    .abi_major = ISOGATE_ABI_MAJOR,
    .struct_size = sizeof plugin,
    .isolation = ISOGATE_ISOLATION_NONE,
    .locality = ISOGATE_LOCALITY_PROCESS,
    .id = "com.example.minimal",
    .version = "1.0.0",
    .summary = "true and false",
    .vendor = "",
    .license = "",
    .api = &api,
};

ISOGATE_EXPORT const isogate_plugin* isogate_plugin_entry(uint32_t host_major, uint32_t host_minor) {
  (void)host_major, (void)host_minor;
  return &plugin;
}
