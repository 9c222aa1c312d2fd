#include "plugins/k8s/pod/weaker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "plugins/k8s/pod/measured_pod.h"
#include "plugins/k8s/pod/profile.h"

namespace isogate::k8s {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

Json asked(
    const char* config_json = R"({"secrets": [{"secret": "token", "target": "/run/secrets/token"}]})") {
  const Config config = parse_config(config_json);
  Parts parts;
  parts.owner = {"instance", "k8s", "isg-a"};
  parts.pod = parts.claim = "isg-a-1";
  return pod_of(config, parts, limits_of(config, {}));
}

struct Case {
  const char* what;
  const char* patch;  // RFC 6902, to the requested pod
};

Json with(const Case& each) { return asked().patch(Json::parse(each.patch)); }

TEST(K8sWeaker, WhatWasAskedForIsNot) { EXPECT_EQ(weaker_than(asked(), asked()), ""); }

TEST(K8sWeaker, WhatAClusterChangesWithoutHarmIsNot) {
  const Case kCases[] = {
      {"false is left out", R"([{"op": "remove", "path": "/spec/hostNetwork"},
                                {"op": "remove", "path": "/spec/hostPID"}, {"op": "remove", "path": "/spec/hostIPC"},
                                {"op": "remove", "path": "/spec/containers/0/tty"},
                                {"op": "remove", "path": "/spec/containers/0/volumeMounts/1/readOnly"}])"},
      {"defaults", R"([{"op": "add", "path": "/spec/serviceAccountName", "value": "default"},
                       {"op": "add", "path": "/spec/containers/0/securityContext/procMount", "value": "Default"}])"},
      {"where it runs", R"([{"op": "add", "path": "/spec/nodeName", "value": "n"},
                            {"op": "add", "path": "/spec/tolerations", "value": [{"key": "a"}]}])"},
      {"canonical quantities",
       R"([{"op": "replace", "path": "/spec/containers/0/resources/limits/cpu", "value": "1"},
           {"op": "replace", "path": "/spec/containers/0/resources/limits/memory", "value": "512Mi"}])"},
      {"lower limits",
       R"([{"op": "replace", "path": "/spec/containers/0/resources/limits/memory", "value": "64M"}])"},
      {"other requests",
       R"([{"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": "9"}])"},
      {"a mirror", R"([{"op": "replace", "path": "/spec/containers/0/image", "value": "mirror/x"},
                       {"op": "replace", "path": "/spec/containers/0/imagePullPolicy", "value": "Always"}])"},
      {"labels and annotations more",
       R"([{"op": "add", "path": "/metadata/labels/controller-uid", "value": "u"},
                                          {"op": "add", "path": "/metadata/annotations/a", "value": "b"}])"},
      {"a level of SELinux",
       R"([{"op": "add", "path": "/spec/securityContext/seLinuxOptions", "value": {"level": "s0:c1,c2"}}])"},
  };
  for (const Case& each : kCases) EXPECT_EQ(weaker_than(asked(), with(each)), "") << each.what;
}

TEST(K8sWeaker, EachMissingPartOfTheIsolationProfileIsNamed) {
  const Case kCases[] = {
      {"hostNetwork", R"([{"op": "replace", "path": "/spec/hostNetwork", "value": true}])"},
      {"hostPID", R"([{"op": "replace", "path": "/spec/hostPID", "value": true}])"},
      {"hostIPC", R"([{"op": "replace", "path": "/spec/hostIPC", "value": true}])"},
      {"shareProcessNamespace",
       R"([{"op": "replace", "path": "/spec/shareProcessNamespace", "value": true}])"},
      {"automountServiceAccountToken", R"([{"op": "remove", "path": "/spec/automountServiceAccountToken"}])"},
      {"restartPolicy", R"([{"op": "replace", "path": "/spec/restartPolicy", "value": "Always"}])"},
      {"runAsUser", R"([{"op": "replace", "path": "/spec/securityContext/runAsUser", "value": 0}])"},
      {"runAsNonRoot", R"([{"op": "remove", "path": "/spec/securityContext/runAsNonRoot"}])"},
      {"supplementalGroups",
       R"([{"op": "replace", "path": "/spec/securityContext/supplementalGroups", "value": [10000, 0]}])"},
      {"seccompProfile", R"([{"op": "remove", "path": "/spec/securityContext/seccompProfile"}])"},
      {"type",
       R"([{"op": "replace", "path": "/spec/securityContext/seccompProfile/type", "value": "Unconfined"}])"},
      {"sysctls",
       R"([{"op": "add", "path": "/spec/securityContext/sysctls", "value": [{"name": "a", "value": "b"}]}])"},
      {"seLinuxOptions",
       R"([{"op": "add", "path": "/spec/securityContext/seLinuxOptions", "value": {"type": "spc_t"}}])"},
      {"privileged",
       R"([{"op": "replace", "path": "/spec/containers/0/securityContext/privileged", "value": true}])"},
      {"allowPrivilegeEscalation",
       R"([{"op": "remove", "path": "/spec/containers/0/securityContext/allowPrivilegeEscalation"}])"},
      {"readOnlyRootFilesystem",
       R"([{"op": "remove", "path": "/spec/containers/0/securityContext/readOnlyRootFilesystem"}])"},
      {"drop",
       R"([{"op": "replace", "path": "/spec/containers/0/securityContext/capabilities/drop", "value": []}])"},
      {"capabilities.add",
       R"([{"op": "add", "path": "/spec/containers/0/securityContext/capabilities/add", "value": ["SYS_ADMIN"]}])"},
      {"runAsUser", R"([{"op": "add", "path": "/spec/containers/0/securityContext/runAsUser", "value": 0}])"},
      {"seccompProfile",
       R"([{"op": "add", "path": "/spec/containers/0/securityContext/seccompProfile", "value": {"type": "Unconfined"}}])"},
      {"terminationMessagePath",
       R"([{"op": "replace", "path": "/spec/containers/0/terminationMessagePath", "value": "/dev/termination-log"}])"},
      {"procMount",
       R"([{"op": "add", "path": "/spec/containers/0/securityContext/procMount", "value": "Unmasked"}])"},
      {"privileged",
       R"([{"op": "replace", "path": "/spec/initContainers/0/securityContext/privileged", "value": true}])"},
      {"memory",
       R"([{"op": "replace", "path": "/spec/containers/0/resources/limits/memory", "value": "1Gi"}])"},
      {"memory", R"([{"op": "remove", "path": "/spec/containers/0/resources/limits/memory"}])"},
      {"cpu", R"([{"op": "replace", "path": "/spec/containers/0/resources/limits/cpu", "value": "1001m"}])"},
      {"cpu",
       R"([{"op": "replace", "path": "/spec/containers/0/resources/limits/cpu", "value": "1 apple"}])"},
      {"cpu", R"([{"op": "replace", "path": "/spec/containers/0/resources/limits/cpu", "value": "0"}])"},
      {"memory", R"([{"op": "replace", "path": "/spec/containers/0/resources/limits/memory", "value": 0}])"},
      {"memory",
       R"([{"op": "replace", "path": "/spec/containers/0/resources/limits/memory", "value": "-1Gi"}])"},
      {"memory",
       R"([{"op": "replace", "path": "/spec/containers/0/resources/limits/memory", "value": "nan"}])"},
      {"sizeLimit", R"([{"op": "replace", "path": "/spec/volumes/1/emptyDir", "value": {}}])"},
      {"sizeLimit", R"([{"op": "replace", "path": "/spec/volumes/1/emptyDir/sizeLimit", "value": "0"}])"},
      {"spec.containers", R"([{"op": "add", "path": "/spec/containers/1", "value": {"name": "proxy"}}])"},
      {"spec.initContainers",
       R"([{"op": "add", "path": "/spec/initContainers/1", "value": {"name": "proxy"}}])"},
      {"ephemeralContainers",
       R"([{"op": "add", "path": "/spec/ephemeralContainers", "value": [{"name": "debug"}]}])"},
      {"spec.volumes", R"([{"op": "add", "path": "/spec/volumes/0",
                            "value": {"name": "node", "hostPath": {"path": "/"}}}])"},
      {"emptyDir", R"([{"op": "replace", "path": "/spec/volumes/0",
                        "value": {"name": "runner", "hostPath": {"path": "/"}}}])"},
      {"claimName",
       R"([{"op": "replace", "path": "/spec/volumes/4/persistentVolumeClaim/claimName", "value": "another"}])"},
      {"secretName",
       R"([{"op": "replace", "path": "/spec/volumes/5/secret/secretName", "value": "another"}])"},
      {"volumeMounts", R"([{"op": "add", "path": "/spec/containers/0/volumeMounts/0",
                            "value": {"name": "shm", "mountPath": "/etc"}}])"},
      {"readOnly", R"([{"op": "remove", "path": "/spec/containers/0/volumeMounts/0/readOnly"}])"},
      {"mountPropagation", R"([{"op": "add", "path": "/spec/containers/0/volumeMounts/0/mountPropagation",
                                "value": "Bidirectional"}])"},
      {"command", R"([{"op": "replace", "path": "/spec/containers/0/command", "value": ["sh"]}])"},
      {"args", R"([{"op": "add", "path": "/spec/containers/0/args", "value": ["x"]}])"},
      {"env", R"([{"op": "add", "path": "/spec/containers/0/env", "value": [{"name": "A", "value": "b"}]}])"},
      {"envFrom",
       R"([{"op": "add", "path": "/spec/containers/0/envFrom", "value": [{"secretRef": {"name": "s"}}]}])"},
      {"limits.vendor.com/device was not asked for",
       R"([{"op": "add", "path": "/spec/containers/0/resources/limits/vendor.com~1device", "value": "1"}])"},
      {"claims",
       R"([{"op": "add", "path": "/spec/containers/0/resources/claims", "value": [{"name": "d"}]}])"},
      {"resourceClaims", R"([{"op": "add", "path": "/spec/resourceClaims", "value": [{"name": "d"}]}])"},
      {"cpu-quota.crio.io",
       R"([{"op": "add", "path": "/metadata/annotations/cpu-quota.crio.io", "value": "disable"}])"},
      {"volumeDevices",
       R"([{"op": "add", "path": "/spec/containers/0/volumeDevices", "value": [{"name": "d"}]}])"},
      {"ports", R"([{"op": "add", "path": "/spec/containers/0/ports", "value": [{"hostPort": 80}]}])"},
      {"dnsPolicy", R"([{"op": "replace", "path": "/spec/dnsPolicy", "value": "Default"}])"},
      {"labels", R"([{"op": "remove", "path": "/metadata/labels/isogate.io~1sandbox"}])"},
      {"securityContext", R"([{"op": "replace", "path": "/spec/securityContext", "value": null}])"},
      {"spec", R"([{"op": "replace", "path": "/spec", "value": 7}])"},
      {"not understood", R"([{"op": "remove", "path": "/spec"}])"},
      {"metadata.labels", R"([{"op": "replace", "path": "/metadata", "value": 7}])"},
      {"metadata.labels", R"([{"op": "replace", "path": "/metadata/labels", "value": ["a"]}])"},
      {"metadata.annotations", R"([{"op": "replace", "path": "/metadata/annotations", "value": "a"}])"},
      {"not understood", R"([{"op": "replace", "path": "/spec/volumes", "value": [1]}])"},
  };
  for (const Case& each : kCases) EXPECT_THAT(weaker_than(asked(), with(each)), HasSubstr(each.what));
}

TEST(K8sWeaker, ARuntimeClassAndADeadlineAreKept) {
  const Json own = asked(R"({"runtime_class": "kata", "max_lifetime_sec": 60})");
  for (const char* field : {"runtimeClassName", "activeDeadlineSeconds"}) {
    Json pod = own;
    pod["spec"].erase(field);
    EXPECT_THAT(weaker_than(own, pod), HasSubstr(field));
  }
}

TEST(K8sWeaker, ALimitWhereNoneWasAskedForIsNot) {
  const Json own = asked(R"({"memory_mb": 0})");
  Json pod = own;
  pod["spec"]["containers"][0]["resources"]["limits"]["memory"] = "1Gi";
  EXPECT_EQ(weaker_than(own, pod), "");
}

const Json kMeasured = Json::parse(R"({
  "metadata": {"labels": {"a": "b"}, "ownerReferences": [{"uid": "u", "kind": "Lease"}]},
  "spec": {"containers": [{"name": "sandbox", "image": "i"}], "initContainers": [{"name": "runner", "image": "r"}]},
  "status": {"containerStatuses": [{"name": "sandbox", "containerID": "c", "imageID": "d", "restartCount": 0}]}})");

TEST(K8sMeasuredPod, IsTheSameUntilSomethingOfItDiffers) {
  const Json likeness = likeness_of(kMeasured);
  EXPECT_EQ(what_differs(likeness, kMeasured), "");
  EXPECT_EQ(likeness.at("owners"), (Json{{"u", "Lease"}}));
  const Case kCases[] = {
      {"images: sandbox", R"([{"op": "replace", "path": "/spec/containers/0/image", "value": "j"}])"},
      {"containers: sandbox",
       R"([{"op": "replace", "path": "/status/containerStatuses/0/restartCount", "value": 1}])"},
      {"labels: a", R"([{"op": "replace", "path": "/metadata/labels/a", "value": ["b"]}])"},
      {"labels are fewer", R"([{"op": "remove", "path": "/metadata/labels/a"}])"},
      {"owners are fewer", R"([{"op": "remove", "path": "/metadata/ownerReferences/0"}])"},
      {"containers are fewer", R"([{"op": "remove", "path": "/status/containerStatuses"}])"},
  };
  for (const Case& each : kCases)
    EXPECT_THAT(what_differs(likeness, kMeasured.patch(Json::parse(each.patch))), HasSubstr(each.what));
}

// Even if it was the same when it was measured.
TEST(K8sMeasuredPod, WhatIsNotUnderstoodDiffers) {
  const Case kCases[] = {
      {"labels", R"([{"op": "replace", "path": "/metadata/labels", "value": "a"}])"},
      {"labels", R"([{"op": "replace", "path": "/metadata", "value": ["a"]}])"},
      {"owners", R"([{"op": "replace", "path": "/metadata/ownerReferences", "value": "u"}])"},
      {"owners", R"([{"op": "replace", "path": "/metadata/ownerReferences/0", "value": 7}])"},
      {"owners", R"([{"op": "replace", "path": "/metadata/ownerReferences/0/uid", "value": 7}])"},
      {"owners", R"([{"op": "add", "path": "/metadata/ownerReferences/1", "value": {"uid": "u"}}])"},
      {"images", R"([{"op": "replace", "path": "/spec/containers/0/name", "value": null}])"},
      {"images", R"([{"op": "replace", "path": "/spec/containers", "value": {"name": "sandbox"}}])"},
      {"images", R"([{"op": "add", "path": "/spec/ephemeralContainers", "value": [{"name": "sandbox"}]}])"},
      {"containers", R"([{"op": "replace", "path": "/status", "value": null}])"},
      {"containers", R"([{"op": "add", "path": "/status/containerStatuses/1", "value": []}])"},
  };
  for (const Case& each : kCases) {
    const Json odd = kMeasured.patch(Json::parse(each.patch));
    for (const Json& before : {kMeasured, odd})
      EXPECT_THAT(what_differs(likeness_of(before), odd),
                  HasSubstr(std::string("its ") + each.what + " are not understood"))
          << each.patch;
  }
  EXPECT_NE(what_differs(likeness_of(Json()), Json()), "");
  EXPECT_NE(what_differs(Json(), kMeasured), "");
}

TEST(K8sMeasuredPod, RulesOfAPolicyThatAreNotUnderstoodAreOthers) {
  Parts parts;
  parts.owner = {"instance", "k8s", "isg-a"};
  const Json own = policy_of(parse_config(""), parts);
  EXPECT_EQ(what_policy_lacks(own, own), "");
  Json bare = own;
  for (const char* rules : {"ingress", "egress"}) bare["spec"].erase(rules);
  EXPECT_EQ(what_policy_lacks(own, bare), "");
  for (const char* rules : {"ingress", "egress"})
    for (const Json& odd : {Json("x"), Json(7), Json::object(), Json::array({Json::object()})}) {
      Json other = own;
      other["spec"][rules] = odd;
      EXPECT_NE(what_policy_lacks(own, other), "") << odd;
    }
}

TEST(K8sWeaker, WhatAWeakerTemplateRequestsIsNotReported) {
  const Json own = asked(R"({"allow_weaker_template": true, "template": {"spec": {"hostNetwork": true}}})");
  EXPECT_EQ(weaker_than(own, own), "");
}

}  // namespace
}  // namespace isogate::k8s
