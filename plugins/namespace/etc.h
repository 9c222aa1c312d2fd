// The /etc of a sandbox: only what programs need, and nothing about this host.
#pragma once

#include <string>

#include "lib/fd.h"

namespace isogate::ns {

// What is copied from the host's /etc, if others may read it there.
struct Copied {
  const char* name;  // below /etc; a `*` at the end: everything that begins so
  const char* reason;
};
inline constexpr Copied kCopied[] = {
    {"alternatives", "where /usr/bin/java, editor, awk … point"},
    {"bash.bashrc", "interactive shells"},
    {"ca-certificates*", "TLS"},
    {"debian_version", "installers look at it"},
    {"default/locale", "locale"},
    {"fonts", "rendering"},
    {"gai.conf", "getaddrinfo"},
    {"host.conf", "the resolver"},
    {"inputrc", "readline"},
    {"java*", "the JVM's configuration"},
    {"ld.so.c*", "the dynamic linker"},
    {"locale.*", "locale"},
    {"localtime", "time zone"},
    {"magic*", "file"},
    {"manpath.config", "man"},
    {"mime.types", "web servers"},
    {"os-release", "installers look at it"},
    {"perl", "perl"},
    {"profile", "login shells"},
    {"profile.d", "login shells"},
    {"protocols", "getprotobyname"},
    {"python3*", "python"},
    {"rpc", "getrpcbyname"},
    {"services", "getservbyname"},
    {"ssl/certs", "TLS"},
    {"ssl/openssl.cnf", "TLS"},
    {"terminfo", "terminals"},
    {"timezone", "time zone"},
    {"vim", "editors"},
    {"wgetrc", "wget"},
    {"xattr.conf", "cp"},
};

// Fills `to`, an empty directory. From this host: what the table lists. From the operator's `root`, which has
// no secrets of this host: everything that others may read. passwd and group are symlinks to isogate/, which
// each sandbox has separately.
Result<void> fill_etc(int to, const std::string& root);

}  // namespace isogate::ns
