#include "gateway/supervisor/tls_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "gateway/base/trusted_path.h"
#include "lib/fd.h"
#include "lib/log.h"

namespace isogate::supervisor {
namespace {

constexpr size_t kMostBytes = 1 << 20;

Result<void> check_key_file(const struct stat& info, const std::string& path) {
  const auto refuse = [&path](const std::string& what) {
    return Error{ISOGATE_PERMISSION_DENIED, 0, "tls.key: `" + path + "` " + what};
  };
  if (info.st_uid != 0 && info.st_uid != ::geteuid())
    return refuse("belongs to uid " + std::to_string(info.st_uid) +
                  "; make it root's or the gateway's user's");
  if ((info.st_mode & 0027) != 0)
    return refuse("may be read by others or written by its group or others; chmod 0600 (or 0640)");
  return {};
}

Result<std::string> read_file(const std::string& setting, const std::string& path, bool secret) {
  const std::string what = setting + ": cannot read `" + path + "`";
  auto file = open_settings_file(path, what);
  if (!file) return file.error();
  struct stat info {};
  if (::fstat(file->get(), &info) != 0) return os_error(what, errno);
  if (!S_ISREG(info.st_mode)) return invalid(what + ": it is no regular file");
  if (secret)
    if (auto checked = check_key_file(info, path); !checked) return checked.error();
  auto bytes = read_to_end(file->get(), kMostBytes, what);
  if (bytes && bytes->empty()) return invalid(what + ": it is empty");
  return bytes;
}

void log_certificate(const TlsContext& context) {
  const CertificateInfo info = describe_certificate(context);
  log::info("tls_certificate", {{"subject", info.subject}, {"not_after", info.not_after}});
  if (info.expired || info.not_yet_valid)
    log::warn(
        "tls_certificate_invalid",
        {{"subject", info.subject}, {"reason", info.expired ? "it has expired" : "it is not valid yet"}});
}

}  // namespace

Result<TlsMaterial> read_tls_files(const TlsConfig& config) {
  TlsMaterial material;
  if (!config.enabled()) return material;
  auto certificate = read_file("tls.cert", config.cert, false);
  if (!certificate) return certificate.error();
  auto key = read_file("tls.key", config.key, true);
  if (!key) return key.error();
  material.certificate = std::move(*certificate);
  material.key = std::move(*key);
  if (!config.client_ca.empty()) {
    auto authorities = read_file("tls.client_ca", config.client_ca, false);
    if (!authorities) return authorities.error();
    material.client_ca = std::move(*authorities);
    material.client_required = config.client_auth == "required";
  }
  auto context = make_tls_context(material);
  if (!context) return context.error();
  log_certificate(*context);
  return material;
}

}  // namespace isogate::supervisor
