// SPDX-License-Identifier: Apache-2.0
// What lies where: allocations, mappings, pinned and registered memory; what work uses of it; what was left.
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include <sys/mman.h>

#include "memory.hpp"

namespace emulation {
namespace {

struct in_use {
  std::uintptr_t begin;
  std::size_t bytes;
  std::string what;
};
struct all_ranges {
  std::mutex lock;
  std::map<std::uintptr_t, range> ranges;
  std::map<std::uint64_t, in_use> uses;
  std::uint64_t used = 0;
  std::size_t made = 0;
};
all_ranges& all() {
  static all_ranges* these = new all_ranges;
  return *these;
}
constexpr std::size_t page = 4096;
std::size_t pages(std::size_t bytes) { return (bytes + page - 1) / page * page; }

/// Under the lock.
const range* find(std::uintptr_t at) {
  auto after = all().ranges.upper_bound(at);
  if (after == all().ranges.begin()) return nullptr;
  const range& r = std::prev(after)->second;
  return at - r.begin < r.bytes ? &r : nullptr;
}
const char* maker_of(kind is) {
  switch (is) {
    case kind::device: return "cudaMalloc";
    case kind::nccl: return "ncclMemAlloc";
    case kind::mapped: return "cuMemMap";
    case kind::pinned: return "cudaHostAlloc";
    case kind::registered: return "cudaHostRegister";
  }
  return "?";
}
enum class devices_only { no, yes };
/// Why the bytes are not a device's to use; empty where they are. Mappings side by side are one.
std::string unusable(std::uintptr_t at, std::size_t bytes, devices_only only) {
  const std::lock_guard hold(all().lock);
  const range* r = find(at);
  const std::string where = address_text(reinterpret_cast<const void*>(at));
  if (r == nullptr) return where + " is no device memory, and no pinned or registered host memory";
  const std::uintptr_t begin = r->begin;
  for (const std::uintptr_t end = at + bytes; at < end; r = find(at)) {
    if (r == nullptr || (r->begin != begin && r->is != kind::mapped))
      return "the " + std::to_string(bytes) + " bytes at " + where + " leave what was allocated or mapped";
    if (!r->accessible) return where + " is mapped, but cuMemSetAccess was not called for it";
    if (only == devices_only::yes && !on_device(*r)) return where + " is host memory";
    if (on_device(*r) && r->device >= device_count()) return where + " is memory of no device";
    at = r->begin + r->bytes;
  }
  return "";
}

}  // namespace

bool on_device(const range& r) { return r.is == kind::device || r.is == kind::nccl || r.is == kind::mapped; }
std::string range_text(const range& r) {
  return std::to_string(r.bytes) + " bytes of " + maker_of(r.is) + " at " +
         address_text(reinterpret_cast<const void*>(r.begin));
}
std::optional<range> range_of(const void* address) {
  const std::lock_guard hold(all().lock);
  const range* r = find(reinterpret_cast<std::uintptr_t>(address));
  return r != nullptr ? std::optional(*r) : std::nullopt;
}
void add_range(const range& r) {
  const std::lock_guard hold(all().lock);
  range mine = r;
  mine.number = ++all().made;
  all().ranges[r.begin] = mine;
}
void remove_range(std::uintptr_t begin) {
  const std::lock_guard hold(all().lock);
  all().ranges.erase(begin);
}
void set_accessible(std::uintptr_t begin) {
  const std::lock_guard hold(all().lock);
  all().ranges.at(begin).accessible = true;
}
std::vector<range> ranges_within(std::uintptr_t begin, std::size_t bytes) {
  const std::lock_guard hold(all().lock);
  std::vector<range> found;
  for (const auto& [at, r] : all().ranges)
    if (at < begin + bytes && begin < at + r.bytes) found.push_back(r);
  return found;
}

void* take_memory(std::size_t bytes, kind is) {
  range r;
  r.bytes = bytes, r.is = is, r.device = current_device();
  r.lead = is == kind::device ? 256 * draw(page / 256) : 0;  // cudaMalloc promises 256
  const std::size_t whole = is == kind::nccl ? (bytes + granule - 1) / granule * granule : pages(bytes + r.lead);
  const auto offset = take_physical(r.device, whole);
  if (!offset) return nullptr;
  r.offset = *offset;
  const std::uintptr_t at = take_addresses(whole, granule);
  map_alias(at, whole, r.device, r.offset);
  r.begin = at + r.lead;
  add_range(r);
  return reinterpret_cast<void*>(r.begin);
}
void* take_pinned(std::size_t bytes) {
  void* at = ::mmap(nullptr, pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  std::memset(at, static_cast<int>(1 + draw(255)), bytes);
  range r;
  r.begin = reinterpret_cast<std::uintptr_t>(at), r.bytes = bytes, r.is = kind::pinned, r.device = current_device();
  add_range(r);
  return at;
}
bool register_host(void* address, std::size_t bytes) {
  range r;
  r.begin = reinterpret_cast<std::uintptr_t>(address), r.bytes = bytes, r.is = kind::registered;
  r.device = current_device();
  if (!ranges_within(r.begin, bytes).empty()) return false;
  add_range(r);
  return true;
}
void give_memory(void* address, kind is, const char* caller) {
  const auto r = range_of(address);
  if (!r || r->begin != reinterpret_cast<std::uintptr_t>(address) || r->is != is)
    stop(std::string(caller) + " of " + address_text(address) + ", which is not, or is no longer, of " + maker_of(is));
  check_unused(r->begin, r->bytes, caller);
  remove_range(r->begin);
  if (is == kind::registered) return;
  if (is == kind::pinned) {
    ::mmap(address, pages(r->bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    return;
  }
  const std::size_t whole = is == kind::nccl ? (r->bytes + granule - 1) / granule * granule : pages(r->bytes + r->lead);
  unmap_alias(r->begin - r->lead, whole);
  give_physical(r->device, r->offset, whole);
}

void check_usable(const void* address, std::size_t bytes, const std::string& caller) {
  const std::string why = unusable(reinterpret_cast<std::uintptr_t>(address), bytes, devices_only::no);
  if (!why.empty()) stop(caller + ": " + why);
}
void check_device_memory(const void* address, std::size_t bytes, const std::string& caller) {
  const std::string why = unusable(reinterpret_cast<std::uintptr_t>(address), bytes, devices_only::yes);
  if (!why.empty()) stop(caller + ": " + why);
}
std::vector<segment> segments_of(const void* address, std::size_t bytes) {
  std::vector<segment> list;
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  for (const range& r : ranges_within(begin, bytes)) {
    const std::uintptr_t from = std::max(begin, r.begin), to = std::min(begin + bytes, r.begin + r.bytes);
    const std::size_t at = r.offset + r.lead + (from - r.begin);
    if (!list.empty() && list.back().offset + list.back().bytes == at) list.back().bytes += to - from;
    else list.push_back({at, to - from});
  }
  return list;
}

std::uint64_t begin_use(const void* address, std::size_t bytes, const std::string& what) {
  const std::lock_guard hold(all().lock);
  all().uses[++all().used] = {reinterpret_cast<std::uintptr_t>(address), bytes, what};
  return all().used;
}
void end_use(std::uint64_t use) {
  const std::lock_guard hold(all().lock);
  all().uses.erase(use);
}
void check_unused(std::uintptr_t begin, std::size_t bytes, const std::string& caller) {
  const std::lock_guard hold(all().lock);
  for (const auto& [number, u] : all().uses)
    if (u.begin < begin + bytes && begin < u.begin + u.bytes)
      stop(caller + " takes away memory that " + u.what + " uses, which has not ended");
}
std::vector<std::string> memory_leaks() {
  const std::lock_guard hold(all().lock);
  std::vector<std::string> left;
  for (const auto& [at, r] : all().ranges)
    left.push_back(range_text(r) + (r.is == kind::mapped       ? " were not unmapped"
                                    : r.is == kind::registered ? " were not unregistered"
                                                               : " were not freed"));
  return left;
}

}  // namespace emulation
