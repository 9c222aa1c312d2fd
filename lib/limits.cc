#include "lib/limits.h"

#include <algorithm>

namespace isogate {

Limits::Limits(std::initializer_list<std::pair<uint32_t, uint64_t>> limits) {
  for (const auto& [id, value] : limits) set(id, value);
}

Result<Limits> Limits::take(const isogate_limit* limits, uint64_t count, UnknownLimit unknown) {
  if (count > 256) return invalid("there are too many limits");
  Limits taken;
  for (uint64_t i = 0; i < count; ++i) {
    const isogate_limit& each = limits[i];
    const std::string id = std::to_string(each.id);
    if (each.reserved != 0 || each.value == 0) return invalid("the limit with id " + id + " is malformed");
    const auto same = [&](const isogate_limit& other) { return other.id == each.id; };
    if (std::any_of(limits, limits + i, same)) return invalid("the limit with id " + id + " is there twice");
    const size_t row = limit_row(each.id);
    if (row < kLimitKindCount)
      taken.values_[row] = each.value;
    else if (unknown == UnknownLimit::kRefuse)
      return unsupported("the limit with id " + id + " is not known here");
  }
  return taken;
}

Limits Limits::of(const isogate_evidence& evidence) {
  Limits found;
  const uint32_t count = std::min(evidence.limit_count, ISOGATE_EVIDENCE_LIMITS_MAX);
  for (uint32_t i = 0; i < count; ++i)
    if (const size_t row = limit_row(evidence.limits[i].id); row < kLimitKindCount)
      found.values_[row] = evidence.limits[i].value;
  return found;
}

LimitList Limits::list() const {
  LimitList list;
  for (size_t row = 0; row < kLimitKindCount; ++row)
    if (values_[row] != 0) list.items[list.count++] = {kLimitKinds[row].id, 0, values_[row]};
  return list;
}

void Limits::put(isogate_evidence& evidence) const {
  const LimitList own = list();
  evidence.limit_count = own.count;
  std::copy_n(own.items.begin(), own.count, evidence.limits);
}

std::string Limits::settings_beside(std::span<const uint32_t> ids) const {
  std::string names;
  for (const LimitKind& kind : kLimitKinds)
    if (get(kind.id) != 0 && std::find(ids.begin(), ids.end(), kind.id) == ids.end())
      names += (names.empty() ? "" : ", ") + std::string(kind.setting);
  return names;
}

std::string Limits::too_low() const {
  for (const LimitKind& kind : kLimitKinds)
    if (const uint64_t value = get(kind.id); value != 0 && value < kind.least * kind.scale)
      return kind.setting + (" must be 0 or at least " + std::to_string(kind.least)) +
             ": nothing runs in less";
  return "";
}

Limits Limits::overridden_by(const Limits& others) const {
  Limits result = *this;
  for (size_t row = 0; row < kLimitKindCount; ++row)
    if (others.values_[row] != 0) result.values_[row] = others.values_[row];
  return result;
}

Limits Limits::only(std::span<const uint32_t> ids) const {
  Limits result;
  for (const uint32_t id : ids) result.set(id, get(id));
  return result;
}

bool Limits::within(const Limits& others) const {
  for (size_t row = 0; row < kLimitKindCount; ++row)
    if (others.values_[row] != 0 && (values_[row] == 0 || values_[row] > others.values_[row])) return false;
  return true;
}

Limits Limits::stricter(const Limits& a, const Limits& b) {
  Limits result;
  for (size_t row = 0; row < kLimitKindCount; ++row) {
    const auto [less, more] = std::minmax(a.values_[row], b.values_[row]);
    result.values_[row] = less == 0 ? more : less;
  }
  return result;
}

}  // namespace isogate
