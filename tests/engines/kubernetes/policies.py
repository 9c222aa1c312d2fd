#!/usr/bin/env python3
"""Enforces NetworkPolicy on the node of kubernetes.sh: policies.py SERVER DIR, in the node's mount namespace.

The rules of a pod are iptables' in the pod's own network namespace, since traffic between two pods of one bridge passes
no other hook where the kernel cannot track connections on a bridge. So a pod that has CAP_NET_ADMIN, or the
node's network, is not held by them. Which namespace is which pod's is told by what containerd's CNI keeps of each, and
that is written before the pod's first program runs.

Fails closed: what a policy says that is not understood here drops all of the pods that it selects, and so does a
pod that the API server does not know (any more). A node reaches its own pods, as the kubelet's probes do; they not it.

SIGTERM removes all rules: no policy is in force afterwards. Killed otherwise, it leaves the rules of the pods there are,
and what comes then has none.
"""

import ipaddress
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.request

SERVER, DIR = sys.argv[1], sys.argv[2]
ATTACHED = "/var/lib/cni/results"
APPLIED = DIR + "/policies.ready"
RESTORE = {4: "iptables-restore", 6: "ip6tables-restore"}
NEIGHBOURS = [f"-p icmpv6 --icmpv6-type {kind} -j ACCEPT" for kind in (135, 136)]


class NotUnderstood(Exception):
    pass


def known(what, *members):
    """The members of an object; any other is an error."""
    if set(what) - set(members):
        raise NotUnderstood(f"{sorted(set(what) - set(members))}")
    return [what.get(each) for each in members]


# ---- the API server's objects ------------------------------------------------------------------------------------------


class Kind:
    """All objects of a kind by namespace and name: listed, then watched, forever."""

    def __init__(self, path, changed):
        self.path, self.changed, self.objects, self.listed = path, changed, {}, False
        threading.Thread(target=self.follow, daemon=True).start()

    def follow(self):
        while True:
            try:
                version = self.list()
                self.watch(version)
            except (OSError, ValueError, KeyError) as error:
                print(f"{self.path}: {error}", flush=True)
                time.sleep(0.5)

    def list(self):
        with ask(self.path, 30) as answer:
            found = json.load(answer)
        self.objects = {key_of(each): each for each in found["items"]}
        self.listed = True
        self.changed.set()
        return found["metadata"]["resourceVersion"]

    def watch(self, version):
        with ask(f"{self.path}?watch=1&timeoutSeconds=240&resourceVersion={version}", 300) as answer:
            for line in answer:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                if event["type"] == "DELETED":
                    self.objects.pop(key_of(event["object"]), None)
                else:
                    self.objects[key_of(event["object"])] = event["object"]
                self.changed.set()


def key_of(thing):
    return thing["metadata"].get("namespace", ""), thing["metadata"]["name"]


def ask(path, seconds):
    with open(DIR + "/authorization", encoding="ascii") as file:
        name, value = file.read().strip().split(": ", 1)
    request = urllib.request.Request(SERVER + path, headers={name: value})
    return OPENER.open(request, timeout=seconds)


OPENER = urllib.request.build_opener(
    urllib.request.ProxyHandler({}),
    urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=DIR + "/pki/ca.crt")))


# ---- the meaning of policies -----------------------------------------------------------------------------------------------


def selects(selector, labels):
    wanted, expressions = known(selector, "matchLabels", "matchExpressions")
    if any(labels.get(key) != value for key, value in (wanted or {}).items()):
        return False
    for each in expressions or []:
        key, operator, values = known(each, "key", "operator", "values")
        if operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            raise NotUnderstood(f"operator {operator}")
        there = key in labels if operator in ("Exists", "DoesNotExist") else labels.get(key) in values
        if there != (operator in ("In", "Exists")):
            return False
    return True


def labels_of(thing):
    return thing["metadata"].get("labels") or {}


def blocks_of(peer, namespace, pods, namespaces):
    """[(network, those it excepts)] of a peer."""
    block, of_pods, of_namespaces = known(peer, "ipBlock", "podSelector", "namespaceSelector")
    if block is not None:
        if of_pods is not None or of_namespaces is not None:
            raise NotUnderstood("an ipBlock with a selector")
        cidr, excepted = known(block, "cidr", "except")
        return [(ipaddress.ip_network(cidr, False), [ipaddress.ip_network(each, False) for each in excepted or []])]
    if of_namespaces is None:
        spaces = {namespace}
    else:
        spaces = {name for (_, name), each in namespaces.items() if selects(of_namespaces, labels_of(each))}
    return [(ipaddress.ip_network(address["ip"]), [])
            for (space, _), pod in pods.items()
            if space in spaces and selects(of_pods or {}, labels_of(pod)) and not pod["spec"].get("hostNetwork")
            for address in pod["status"].get("podIPs") or []]


def number_of(name, protocol, pod):
    """The port of that name that the pod declares."""
    found = {port["containerPort"] for each in pod["spec"]["containers"] for port in each.get("ports") or []
             if port.get("name") == name and port.get("protocol", "TCP") == protocol}
    if len(found) != 1:
        raise NotUnderstood(f"port {name}")
    return found.pop()


def matches_of(ports, listener):
    """What iptables calls each of a rule's ports; listener: the only pod they are ports of, None where there may be more."""
    found = []
    for each in ports:
        protocol, port, last = known(each, "protocol", "port", "endPort")
        if isinstance(port, str) and listener is not None:
            port = number_of(port, protocol or "TCP", listener)
        if protocol not in (None, "TCP", "UDP", "SCTP") or not isinstance(port, (int, type(None))):
            raise NotUnderstood(f"port {each}")
        match = f"-p {(protocol or 'TCP').lower()} "
        found.append(match + (f"--dport {port}:{last or port} " if port is not None else ""))
    return found


EVERYWHERE = [(ipaddress.ip_network("0.0.0.0/0"), []), (ipaddress.ip_network("::/0"), [])]


def rules_of(direction, pod, policies, pods, namespaces):
    """[(blocks, matches)] of what is allowed; None: everything, because no policy selects the pod."""
    space, found = pod["metadata"]["namespace"], None
    for (where, _), policy in policies.items():
        if where != space:
            continue
        selector, types, ingress, egress = known(policy["spec"], "podSelector", "policyTypes", "ingress", "egress")
        if direction not in types or not selects(selector, labels_of(pod)):
            continue
        found = found or []
        side, rules = ("from", ingress) if direction == "Ingress" else ("to", egress)
        for rule in rules or []:
            peers, ports = known(rule, side, "ports")
            blocks = [block for peer in peers or [] for block in blocks_of(peer, space, pods, namespaces)]
            matches = matches_of(ports, pod if direction == "Ingress" else None) if ports else [""]
            found.append((blocks if peers else EVERYWHERE, matches))
    return found


def chain_of(name, rules, family):
    """The chain's policy, its own further chains and all of their rules."""
    towards, device = ("-s", "-i") if name == "INPUT" else ("-d", "-o")
    if rules is None:
        return "ACCEPT", [], []
    lines = [f"-A {name} {device} lo -j ACCEPT", f"-A {name} -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT"]
    if family == 6:
        lines += [f"-A {name} {each}" for each in NEIGHBOURS]
    chains = []
    for blocks, matches in rules:
        for network, excepted in blocks:
            if network.version != family:
                continue
            chain = f"{name}-{len(chains)}"
            chains.append(chain)
            lines.append(f"-A {name} {towards} {network} -j {chain}")
            lines += [f"-A {chain} {towards} {each} -j RETURN" for each in excepted]
            lines += [f"-A {chain} {match}-j ACCEPT" for match in matches]
    return "DROP", chains, lines


def table(family, ingress, egress):
    """What iptables-restore reads."""
    head, body = [], []
    for name, rules in (("INPUT", ingress), ("OUTPUT", egress)):
        policy, chains, lines = chain_of(name, rules, family)
        head += [f":{name} {policy} [0:0]"] + [f":{chain} - [0:0]" for chain in chains]
        body += lines
    return "\n".join(["*filter", *head, *body, "COMMIT", ""])


NOTHING = {family: f"*filter\n:INPUT DROP [0:0]\n:OUTPUT DROP [0:0]\nCOMMIT\n" for family in RESTORE}
ANYTHING = {family: text.replace("DROP", "ACCEPT") for family, text in NOTHING.items()}


def tables_of(pod, node, kinds):
    if pod is None:
        return NOTHING
    try:
        ingress, egress = (rules_of(direction, pod, *kinds) for direction in ("Ingress", "Egress"))
        if ingress is not None:
            ingress.append(([(node, [])], [""]))
        return {family: table(family, ingress, egress) for family in RESTORE}
    except (NotUnderstood, ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"{key_of(pod)}: a policy is not understood, all is dropped: {error!r}", flush=True)
        return NOTHING


# ---- the pods of the node ---------------------------------------------------------------------------------------------


class Attached:
    """A pod's network, as CNI created it."""

    def __init__(self, file):
        with open(file, encoding="utf-8") as text:
            kept = json.load(text)
        told = dict(kept["cniArgs"])
        self.key = told["K8S_POD_NAMESPACE"], told["K8S_POD_NAME"]
        self.uid = told["K8S_POD_UID"]
        result = kept["result"]
        [self.place] = {each["sandbox"] for each in result["interfaces"] if each.get("sandbox")}
        self.node = ipaddress.ip_network(result["ips"][0]["gateway"])
        self.applied = None

    def pod(self, pods):
        found = pods.get(self.key)
        return found if found and found["metadata"]["uid"] == self.uid else None

    def apply(self, tables):
        if tables == self.applied:
            return
        for family, program in RESTORE.items():
            made = subprocess.run(["nsenter", "--net=" + self.place, program], input=tables[family], text=True,
                                  stderr=subprocess.PIPE, check=False)
            if made.returncode != 0:
                raise OSError(f"{self.key}: {program}: {made.stderr.strip()}")
        self.applied = tables


class Node:
    def __init__(self):
        self.attached = {}

    def look(self):
        """Whether a new pod has appeared."""
        try:
            names = {each for each in os.listdir(ATTACHED) if each.endswith("-eth0")}
        except FileNotFoundError:
            return False
        for name in set(self.attached) - names:
            del self.attached[name]
        new = names - set(self.attached)
        for name in new:
            try:
                self.attached[name] = Attached(f"{ATTACHED}/{name}")
            except (ValueError, FileNotFoundError):  # half written; gone
                continue
        return bool(new)

    def apply(self, tables_of_pod):
        """Whether all pods have the rules they should have."""
        whole = True
        for each in list(self.attached.values()):
            try:
                each.apply(tables_of_pod(each))
            except OSError as error:
                if os.path.exists(each.place):
                    print(error, flush=True)
                    whole = False
        return whole


def main():
    ended, changed = threading.Event(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    policies = Kind("/apis/networking.k8s.io/v1/networkpolicies", changed)
    pods = Kind("/api/v1/pods", changed)
    namespaces = Kind("/api/v1/namespaces", changed)
    kinds = policies, pods, namespaces
    node, whole = Node(), False
    while not ended.is_set():
        if node.look() or changed.is_set() or not whole:
            changed.clear()
            objects = [dict(kind.objects) for kind in kinds]
            listed = all(kind.listed for kind in kinds)
            whole = node.apply(lambda each: tables_of(each.pod(objects[1]) if listed else None, each.node, objects))
            if whole and listed and not os.path.exists(APPLIED):
                with open(APPLIED, "w", encoding="ascii"):
                    pass
        changed.wait(0.05)
    node.look()
    node.apply(lambda each: ANYTHING)
    os.unlink(APPLIED)


if __name__ == "__main__":
    main()
