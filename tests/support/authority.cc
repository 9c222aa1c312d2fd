#include "tests/support/authority.h"

#include <sys/stat.h>

#include <stdexcept>
#include <vector>

namespace isogate::test {
namespace {

void openssl(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "openssl");
  const ProgramResult result = run_program(arguments);
  if (result.exit_code != 0) throw std::runtime_error("openssl failed: " + result.err);
}

}  // namespace

Authority::Authority(const std::string& name) {
  openssl({"req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
           "30", "-subj", "/CN=" + name, "-addext", "keyUsage=critical,keyCertSign,cRLSign", "-keyout",
           file("ca.key"), "-out", file("ca.pem")});
}

void Authority::sign(const std::string& name, const std::string& san, int days) const {
  const std::string request = file(name + ".csr"), key = file(name + ".key");
  openssl({"req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj",
           "/CN=" + name, "-addext", "subjectAltName=" + san, "-keyout", key, "-out", request});
  // An expired certificate needs `ca`, the only command that accepts dates.
  const std::string database = directory_.file("index", "");
  const std::string config = directory_.file(
      "ca.conf", "[ca]\ndefault_ca=c\n[c]\ndatabase=" + database + "\nnew_certs_dir=" + directory_.path() +
                     "\nrand_serial=yes\ndefault_md=sha256\npolicy=p\ncopy_extensions=copy\nunique_subject="
                     "no\n[p]\ncommonName="
                     "supplied\n");
  const bool past = days < 0;
  std::vector<std::string> sign = {"ca",          "-batch",       "-config", config, "-cert",
                                   certificate(), "-in",          request,   "-out", file(name + ".pem"),
                                   "-keyfile",    file("ca.key"), "-notext"};
  const std::vector<std::string> when =
      past ? std::vector<std::string>{"-startdate", "20200101000000Z", "-enddate", "20200201000000Z"}
           : std::vector<std::string>{"-days", std::to_string(days)};
  sign.insert(sign.end(), when.begin(), when.end());
  openssl(sign);
  if (::chmod(key.c_str(), 0600) != 0) throw std::runtime_error("cannot chmod " + key);
}

}  // namespace isogate::test
