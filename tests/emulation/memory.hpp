// SPDX-License-Identifier: Apache-2.0
// Memory of devices: what the program sees is addresses that no host thread can touch; each has an alias, at a constant
// distance, where the device's threads see the bytes. Physical memory is a file, so that peers can write into it.
// Builds on: rules.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "emulation.hpp"
#include "rules.hpp"

namespace emulation {

inline constexpr std::size_t granule = std::size_t{2} << 20;

/// From now on faults are told by name. Once in a process.
void watch_faults();

int device_count();
int current_device();
void make_current(int device);

/// The device whose context is current in this thread; -1: none is, and the next call that needs one makes it.
int current_context();
/// -1: none from now on.
void set_context(int device);
bool has_context(int device);
/// A call that needs a context, and does something there: it makes the current device's where none is current.
void in_context(const char* caller);
/// Something is done on a device, where it has a context.
void uses_context(int device);
/// Contexts in which nothing was done, and who made them.
std::vector<std::string> idle_contexts();

enum class kind { device, nccl, mapped, pinned, registered };
/// One allocation, mapping or registration.
struct range {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  kind is = kind::device;
  int device = 0;
  std::size_t lead = 0;    // device, nccl: bytes of its first page before it
  std::size_t offset = 0;  // physical, of the page that it begins in
  bool accessible = true;  // mapped: by cuMemSetAccess
  unsigned long long handle = 0;
  std::size_t number = 0;
};
bool on_device(const range& r);
std::string range_text(const range& r);

/// The range that an address lies in.
std::optional<range> range_of(const void* address);
/// cudaMalloc and ncclMemAlloc; nullptr where the device is full.
void* take_memory(std::size_t bytes, kind is);
/// Their end, and that of pinned memory and registrations; stops where `address` begins none, or work still uses it.
void give_memory(void* address, kind is, const char* caller);
void* take_pinned(std::size_t bytes);
/// Whether it was free to be registered.
bool register_host(void* address, std::size_t bytes);

/// Physical memory by itself, as cuMemCreate makes it. Bytes of garbage.
std::optional<std::size_t> take_physical(int device, std::size_t bytes);
void give_physical(int device, std::size_t offset, std::size_t bytes);
/// What NCCL takes for itself: counted, not made. Whether there was room.
bool count_own(int device, std::size_t bytes);
void uncount_own(int device, std::size_t bytes);
std::size_t free_bytes(int device);
std::size_t all_bytes(int device);

/// Addresses of a device, a multiple of the granule apart; never given out again.
std::uintptr_t take_addresses(std::size_t bytes, std::size_t alignment);
void map_alias(std::uintptr_t address, std::size_t bytes, int device, std::size_t offset);
void unmap_alias(std::uintptr_t address, std::size_t bytes);
void add_range(const range& r);
void remove_range(std::uintptr_t begin);
void set_accessible(std::uintptr_t begin);
std::vector<range> ranges_within(std::uintptr_t begin, std::size_t bytes);

/// Stops, with the caller's name, where the bytes are not a device's to use: `how` is what for.
void check_usable(const void* address, std::size_t bytes, const std::string& caller);
/// The same for memory of the current device alone.
void check_device_memory(const void* address, std::size_t bytes, const std::string& caller);
/// The physical places of device memory.
struct segment {
  std::uint64_t offset, bytes;
};
std::vector<segment> segments_of(const void* address, std::size_t bytes);
/// The file of a device's memory, and where all of it is mapped in this process.
int memory_file(int device);
std::byte* memory_at(int device, std::size_t offset);

/// Marks bytes as used by work that is issued, until it says that it ended.
std::uint64_t begin_use(const void* address, std::size_t bytes, const std::string& what);
void end_use(std::uint64_t use);
void check_unused(std::uintptr_t begin, std::size_t bytes, const std::string& caller);

std::vector<std::string> memory_leaks();

}  // namespace emulation

/// First line of an emulated function that needs a context.
#define EMULATED_IN_CONTEXT(function, usual_code) \
  EMULATED(function, usual_code);                 \
  emulation::in_context(#function)
