// Credentials that change while a gateway is up, on a real cluster.
#include "tests/k8s/on_cluster.h"
#include "tests/support/processes.h"

namespace isogate::k8s {
namespace {

using test::Caller;
using test::eventually;
using test::Gateway;

class K8sCredentials : public OnCluster {
 protected:
  // A token of the product's account, valid as long as its Secret exists.
  [[nodiscard]] std::string token_bound_to(const Json& secret) const {
    const Json bound = {
        {"apiVersion", "v1"}, {"kind", "Secret"}, {"name", name_of(secret)}, {"uid", uid_of(secret)}};
    const Json asked = {{"apiVersion", "authentication.k8s.io/v1"},
                        {"kind", "TokenRequest"},
                        {"spec", {{"expirationSeconds", 3600}, {"boundObjectRef", bound}}}};
    const Resource account{"v1", "isogate", "serviceaccounts", "isogate", "token"};
    return api_->create(account, asked, usual()).at("status").at("token");
  }
  [[nodiscard]] Json new_secret() const {
    const Json secret = {
        {"apiVersion", "v1"}, {"kind", "Secret"}, {"metadata", {{"name", "test-" + test::new_mark()}}}};
    return api_->create({"v1", "isogate", "secrets"}, secret, usual());
  }
  void revoke(const Json& secret) const {
    api_->remove({"v1", "isogate", "secrets", name_of(secret)}, Json(), usual());
  }
  [[nodiscard]] bool is_valid(const std::string& token) const {
    ClusterAccess access = api_->access();
    CredentialFiles files;
    files.token.text = token;
    access.credentials = file_credentials(files);
    try {
      Api(access).list(resource("pods"), {}, usual());
      return true;
    } catch (const NetError& error) {
      EXPECT_EQ(error.http_status(), 401) << error.what();
      return false;
    }
  }
};

TEST_F(K8sCredentials, ATokenFileThatWasRotatedIsReadWhenTheOldTokenIsRefused) {
  const test::TemporaryDirectory files;
  const Json first = new_secret(), second = new_secret();
  const std::string old_token = token_bound_to(first);
  const std::string token = files.file("token", old_token);
  std::string kubeconfig = test::read_whole(test::cluster_directory() + "/kubeconfig-isogate");
  const size_t at = kubeconfig.find("token: ");
  ASSERT_NE(at, std::string::npos);
  kubeconfig.replace(at, kubeconfig.find('\n', at) - at, "tokenFile: " + token);
  std::string config = test::cluster_config();
  config.replace(0, config.find(", "), "kubeconfig: " + files.file("kubeconfig", kubeconfig));
  Gateway gateway(bare(config));
  const Caller me(gateway, "a");
  me.run("echo here > /tmp/mark");
  files.file("token", token_bound_to(second));
  revoke(first);
  ASSERT_TRUE(eventually(30, [&] { return !is_valid(old_token); })) << "the cluster still accepts it";
  EXPECT_EQ(me.out("cat /tmp/mark"), "here\n");
  EXPECT_EQ(Caller(gateway, "b").out("echo works"), "works\n");
  revoke(second);
}

}  // namespace
}  // namespace isogate::k8s
