// SPDX-License-Identifier: Apache-2.0
// Physical memory: a file per device, what is free of it, garbage in what is new, and addresses that fault by name.
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory.hpp"

namespace emulation {
namespace {

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RESHARD_EMULATION_SMALL_ARENA
#endif
#endif
#if defined(__SANITIZE_THREAD__) || defined(RESHARD_EMULATION_SMALL_ARENA)
constexpr std::size_t arena_bytes = std::size_t{64} << 30;
#else
constexpr std::size_t arena_bytes = std::size_t{256} << 30;
#endif

struct device_file {
  int fd = -1;
  std::byte* all = nullptr;
  std::size_t total = 0, used = 0, peak = 0;
  std::map<std::size_t, std::size_t> free;  // offset -> bytes; the file is four times as long as the memory
};
struct physical {
  std::mutex lock;
  std::vector<device_file> devices;
  std::uintptr_t arena = 0, alias = 0, next = 0;
};

void* reserve(std::size_t bytes) {
  void* at = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) stop("no " + std::to_string(bytes) + " bytes of addresses are left");
  return at;
}
std::uintptr_t aligned(std::uintptr_t value, std::size_t to) { return (value + to - 1) / to * to; }

physical& all() {
  static physical* these = [] {
    auto* made = new physical;
    made->devices.resize(static_cast<std::size_t>(device_count()));
    made->arena = aligned(reinterpret_cast<std::uintptr_t>(reserve(arena_bytes + granule)), granule);
    made->alias = aligned(reinterpret_cast<std::uintptr_t>(reserve(arena_bytes + granule)), granule);
    made->next = made->arena;
    return made;
  }();
  return *these;
}
/// The device's file, made when it is first used. Under the lock.
device_file& file_of(int device) {
  device_file& file = all().devices[static_cast<std::size_t>(device)];
  if (file.fd >= 0) return file;
  file.total = static_cast<std::size_t>(setting("EMULATION_MEMORY_MIB", 1024)) << 20;
  const std::size_t length = 4 * file.total;
  file.fd = ::memfd_create("device memory", MFD_CLOEXEC);
  if (file.fd < 0 || ::ftruncate(file.fd, static_cast<off_t>(length)) != 0) stop("no file for a device's memory");
  void* at = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.fd, 0);
  if (at == MAP_FAILED) stop("a device's memory can't be mapped");
  file.all = static_cast<std::byte*>(at);
  file.free[0] = length;
  return file;
}
void fill_with_garbage(std::byte* at, std::size_t bytes) {
  std::uint64_t pattern[512];
  dice random(draw(1u << 30));
  for (std::uint64_t& word : pattern) word = random.next();
  for (std::size_t done = 0; done < bytes; done += sizeof pattern)
    std::memcpy(at + done, pattern, std::min(sizeof pattern, bytes - done));
}
/// A fault that is the program's own ends it as if nobody had looked.
void at_fault(int number, siginfo_t* info, void*) {
  const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const physical& p = all();
  if (at >= p.arena && at < p.arena + arena_bytes) stop_at_fault("the host touched device memory", at);
  if (at >= p.alias && at < p.alias + arena_bytes)
    stop_at_fault("a device touched memory that is not mapped, or was freed while its work was in flight",
                  at - p.alias + p.arena);
  if (on_device_thread()) stop_at_fault("a device touched what is no memory", at);
  ::signal(number, SIG_DFL);
}

}  // namespace

void watch_faults() {
  static_cast<void>(all());  // not first within the handler
  struct sigaction action {};
  action.sa_sigaction = at_fault;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, nullptr);
  ::sigaction(SIGBUS, &action, nullptr);
}

std::optional<std::size_t> take_physical(int device, std::size_t bytes) {
  const std::lock_guard hold(all().lock);
  device_file& file = file_of(device);
  if (bytes > file.total - std::min(file.used, file.total)) return std::nullopt;
  const auto found = std::find_if(file.free.begin(), file.free.end(), [&](const auto& f) { return f.second >= bytes; });
  if (found == file.free.end()) return std::nullopt;
  const auto [offset, length] = *found;
  file.free.erase(found);
  if (length > bytes) file.free[offset + bytes] = length - bytes;
  file.used += bytes;
  file.peak = std::max(file.peak, file.used);
  fill_with_garbage(file.all + offset, bytes);
  return offset;
}
void give_physical(int device, std::size_t offset, std::size_t bytes) {
  const std::lock_guard hold(all().lock);
  device_file& file = file_of(device);
  ::fallocate(file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(bytes));
  file.used -= bytes;
  const auto at = file.free.emplace(offset, bytes).first;
  if (const auto after = std::next(at); after != file.free.end() && offset + at->second == after->first) {
    at->second += after->second;
    file.free.erase(after);
  }
  if (at == file.free.begin()) return;
  if (const auto before = std::prev(at); before->first + before->second == at->first) {
    before->second += at->second;
    file.free.erase(at);
  }
}
bool count_own(int device, std::size_t bytes) {
  const std::lock_guard hold(all().lock);
  device_file& file = file_of(device);
  if (bytes > file.total - std::min(file.used, file.total)) return false;
  file.used += bytes;
  file.peak = std::max(file.peak, file.used);
  return true;
}
void uncount_own(int device, std::size_t bytes) {
  const std::lock_guard hold(all().lock);
  file_of(device).used -= bytes;
}
std::size_t free_bytes(int device) {
  const std::lock_guard hold(all().lock);
  return file_of(device).total - file_of(device).used;
}
std::size_t all_bytes(int device) {
  const std::lock_guard hold(all().lock);
  return file_of(device).total;
}
std::size_t used_bytes() { return all_bytes(current_device()) - free_bytes(current_device()); }
std::size_t peak_bytes() {
  const std::lock_guard hold(all().lock);
  return file_of(current_device()).peak;
}
int memory_file(int device) {
  const std::lock_guard hold(all().lock);
  return file_of(device).fd;
}
std::byte* memory_at(int device, std::size_t offset) {
  const std::lock_guard hold(all().lock);
  return file_of(device).all + offset;
}

std::uintptr_t take_addresses(std::size_t bytes, std::size_t alignment) {
  const std::lock_guard hold(all().lock);
  const std::uintptr_t at = aligned(all().next, std::max(alignment, granule));
  all().next = aligned(at + bytes, granule) + granule;  // between two, nothing
  if (all().next > all().arena + arena_bytes) stop("the emulation has no addresses left: it gives none out twice");
  return at;
}
namespace {
std::byte* alias_of(std::uintptr_t address) {
  return reinterpret_cast<std::byte*>(address - all().arena + all().alias);
}
}  // namespace
void map_alias(std::uintptr_t address, std::size_t bytes, int device, std::size_t offset) {
  const void* at = ::mmap(alias_of(address), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory_file(device),
                          static_cast<off_t>(offset));
  if (at == MAP_FAILED) stop("device memory can't be mapped");
}
void unmap_alias(std::uintptr_t address, std::size_t bytes) {
  const void* at =
      ::mmap(alias_of(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) stop("device memory can't be unmapped");
}

std::byte* device_view(const void* address, std::size_t bytes, use how) {
  if (bytes == 0) return nullptr;
  check_usable(address, bytes, how == use::read ? "a device's reading" : "a device's writing");
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (at >= all().arena && at < all().arena + arena_bytes) return alias_of(at);
  return reinterpret_cast<std::byte*>(at);  // pinned: one address for host and device
}
void peek(void* to, const void* device_address, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, device_view(device_address, bytes, use::read), bytes);
}
void poke(void* device_address, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(device_view(device_address, bytes, use::write), from, bytes);
}

}  // namespace emulation
