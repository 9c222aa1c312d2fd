#include "plugins/k8s/client/object.h"

#include <nlohmann/json.hpp>

#include "plugins/k8s/client/api_error.h"

namespace isogate::k8s {

using Json = nlohmann::json;

std::string printable_text(const Json& object, const char* key) { return one_line(text_at(object, key)); }

std::string metadata_text(const Json& object, const char* field) {
  return text_at(member(object, "metadata"), field);
}

std::string uid_of(const Json& object) {
  std::string uid = metadata_text(object, "uid");
  if (!uid.empty()) return uid;
  throw NetError(ISOGATE_UNAVAILABLE, "the API server described an object without its metadata.uid", 200);
}

}  // namespace isogate::k8s
