// SPDX-License-Identifier: Apache-2.0
// Device memory that is reserved whole, mapped by granules as it fills and unmapped by granules as it drains: addresses
// and pointers stay, memory goes. What one range gives back serves another before the device is asked for more.
// Builds on: cuda/on_device.hpp, memory/memory_block.hpp.
#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include <reshard/base/patience.hpp>
#include <reshard/base/refusal.hpp>
#include <reshard/cuda/on_device.hpp>
#include <reshard/memory/memory_block.hpp>

namespace reshard {

/// 2 MiB: what devices map memory by, and the granule where nobody says otherwise.
inline constexpr bytes_t device_granule_bytes = bytes_t{2} << 20;

/// Granules of one size of one device, for the ranges that share them. One thread uses it and them; it outlives them.
class device_granules {
 public:
  using handle = CUmemGenericAllocationHandle;

  /// `granule`: a multiple of what the device maps memory by, which is 2 MiB as a rule. `wait`: how long what is to be
  /// unmapped waits for its readers.
  explicit device_granules(int device, bytes_t granule = device_granule_bytes, patience wait = default_patience)
      : device_(device), granule_(granule), wait_(wait), driver_(&detail::cuda_driver::get()) {
    const on_device here(device);
    detail::require_cuda(::cudaFree(nullptr), "begin on a device");  // its context is there from here on
    std::size_t own = 0;
    const CUmemAllocationProp what = property();
    driver_->require(driver_->granularity(&own, &what, CU_MEM_ALLOC_GRANULARITY_MINIMUM), "say what it maps memory by");
    if (granule < 1 || granule % static_cast<bytes_t>(own) != 0)
      refuse("granules of ", granule, " bytes; device ", device, " maps memory by multiples of ", own);
  }
  device_granules(const device_granules&) = delete;
  device_granules& operator=(const device_granules&) = delete;
  ~device_granules() {
    for (const handle h : spare_) static_cast<void>(driver_->release(h));
  }

  int device() const { return device_; }
  bytes_t granule() const { return granule_; }
  /// Bytes that the device has given, mapped or spare.
  bytes_t bytes() const { return granule_ * made_; }
  bytes_t spare_bytes() const { return granule_ * static_cast<bytes_t>(spare_.size()); }

 private:
  friend class device_memory;

  CUmemAllocationProp property() const {
    CUmemAllocationProp what = {};
    what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    what.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    what.location.id = device_;
    return what;
  }
  /// A spare one; or else one more of the device's.
  handle take() {
    if (!spare_.empty()) {
      const handle h = spare_.back();
      spare_.pop_back();
      return h;
    }
    handle h = 0;
    const CUmemAllocationProp what = property();
    driver_->require(driver_->create(&h, static_cast<std::size_t>(granule_), &what, 0), "make a granule of memory");
    ++made_;
    return h;
  }
  /// It is spare as long as a range waits for it, and the device's again otherwise.
  void put(handle h) {
    spare_.push_back(h);
    trim();
  }
  void trim() {
    while (static_cast<std::int64_t>(spare_.size()) > wanted_) {
      const handle h = spare_.back();
      spare_.pop_back();
      --made_;
      driver_->require(driver_->release(h), "give back a granule of memory");
    }
  }

  int device_;
  bytes_t granule_;
  patience wait_;
  const detail::cuda_driver* driver_;
  std::vector<handle> spare_;
  std::int64_t made_ = 0;
  std::int64_t wanted_ = 0;  // granules that blocks of ranges will still take
};

/// A range of device addresses. Its granules are mapped by their block's `take`, and unmapped by `give_back`.
class device_memory {
 public:
  /// Reserves ceil(bytes / granule) granules and maps none.
  device_memory(device_granules& from, bytes_t bytes) : from_(&from), driver_(from.driver_) {
    if (bytes < 1) refuse("device_memory: cannot reserve ", bytes, " bytes; 1 is the least");
    granules_.resize(static_cast<std::size_t>(ceil_divide(bytes, from.granule())));
    const on_device here(from.device());
    CUdeviceptr at = 0;
    driver_->require(driver_->reserve(&at, static_cast<std::size_t>(this->bytes()), 0, 0, 0), "reserve addresses");
    data_ = reinterpret_cast<std::byte*>(at);
  }
  device_memory(const device_memory&) = delete;
  device_memory& operator=(const device_memory&) = delete;
  /// Who reads or writes it has ended by then.
  ~device_memory() {
    const on_device here(from_->device(), std::nothrow);
    readers_.clear();
    want(-wanted_);
    for (std::size_t g = 0; g < granules_.size(); ++g) {
      if (!granules_[g].mapped) continue;
      static_cast<void>(driver_->unmap(address(g), static_cast<std::size_t>(from_->granule())));
      static_cast<void>(driver_->release(granules_[g].holds));
      --from_->made_;
    }
    static_cast<void>(driver_->free_addresses(address(0), static_cast<std::size_t>(bytes())));
    try {
      from_->trim();
    } catch (const std::exception&) {  // what is spare goes with the last of them
    }
  }

  std::byte* data() const { return data_; }
  bytes_t bytes() const { return count() * from_->granule(); }
  bytes_t mapped_bytes() const { return mapped_ * from_->granule(); }
  memory_place place() const { return {memory_place::kind::device, from_->device()}; }

  /// Maps all of it.
  void take_all() { take(data_, bytes()); }
  /// Nothing is unmapped before this has happened: who reads it says so on a stream of his own.
  void read_until(cuda_event&& end) { readers_.push_back(std::move(end)); }

  /// The range as a block of a binding: these are the calls that map and unmap it. Outlives the block.
  [[nodiscard]] memory_block block(pages_are at_first = pages_are::reserved) {
    if (at_first == pages_are::committed) take_all();
    else want(count() - mapped_ - wanted_);
    return {.begin = data_,
            .granules = count(),
            .granule = from_->granule(),
            .at_first = at_first,
            .come = at_first == pages_are::reserved ? granules_come::when_taken : granules_come::when_written,
            .take = [this](std::byte* at, bytes_t bytes) { take(at, bytes); },
            .give_back = [this](std::byte* at, bytes_t bytes) { give_back(at, bytes); }};
  }

 private:
  struct granule_state {
    device_granules::handle holds = 0;
    bool mapped = false;
  };

  std::int64_t count() const { return static_cast<std::int64_t>(granules_.size()); }
  CUdeviceptr address(std::size_t g) const {
    return reinterpret_cast<CUdeviceptr>(data_) + g * static_cast<std::size_t>(from_->granule());
  }
  std::pair<std::size_t, std::size_t> granules_of(const std::byte* at, bytes_t bytes) const {
    const page_span span = pages_touching(at - data_, at - data_ + bytes, from_->granule());
    if (at < data_ || span.last > count())
      refuse("device_memory: ", bytes, " bytes from byte ", at - data_, " on are no granules of ", count());
    return {static_cast<std::size_t>(span.first), static_cast<std::size_t>(span.last)};
  }
  /// So many more granules, or fewer, are still to be taken; what others give back is kept for them.
  void want(std::int64_t granules) { from_->wanted_ += granules, wanted_ += granules; }

  /// Maps those granules that are not, and lets the device reach them.
  void take(std::byte* at, bytes_t bytes) {
    const auto [first, past] = granules_of(at, bytes);
    const on_device here(from_->device());
    for (std::size_t g = first, end = first; g < past; g = end) {
      for (end = g; end < past && granules_[end].mapped == granules_[g].mapped;) ++end;
      if (!granules_[g].mapped) map(g, end);
    }
  }
  void map(std::size_t first, std::size_t past) {
    const auto size = static_cast<std::size_t>(from_->granule());
    CUmemAccessDesc access = {};
    access.location = from_->property().location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    std::size_t g = first;
    try {
      for (; g < past; ++g) {
        const device_granules::handle h = from_->take();
        if (const CUresult code = driver_->map(address(g), size, 0, h, 0); code != CUDA_SUCCESS) {
          from_->put(h);
          driver_->require(code, "map a granule of memory");
        }
        granules_[g] = {h, true};
        ++mapped_;
      }
      driver_->require(driver_->set_access(address(first), (past - first) * size, &access, 1),
                       "let a device reach granules of memory");
    } catch (const std::exception&) {
      while (g-- > first) try {
          unmap(g);
        } catch (const std::exception&) {  // why it was not mapped is what counts
        }
      throw;
    }
    want(-least(wanted_, static_cast<std::int64_t>(past - first)));
  }
  /// Its memory serves another range, unless the driver refuses: then it is nobody's any more.
  void unmap(std::size_t g) {
    const device_granules::handle h = granules_[g].holds;
    granules_[g].mapped = false;
    --mapped_;
    const CUresult code = driver_->unmap(address(g), static_cast<std::size_t>(from_->granule()));
    if (code == CUDA_SUCCESS) return from_->put(h);
    --from_->made_;
    static_cast<void>(driver_->release(h));
    driver_->require(code, "unmap a granule of memory");
  }
  /// Unmaps whole mappings, one by one, once nobody reads them any more.
  void give_back(std::byte* at, bytes_t bytes) {
    const auto [first, past] = granules_of(at, bytes);
    const on_device here(from_->device());
    const auto end = std::chrono::steady_clock::now() + from_->wait_;
    for (; !readers_.empty(); readers_.pop_back())
      while (!readers_.back().happened()) {
        if (std::chrono::steady_clock::now() > end)
          refuse("device_memory: who reads a range of ", this->bytes(), " bytes has not ended for ",
                 from_->wait_.count(), " ms; nothing of it was unmapped");
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
    for (std::size_t g = first; g < past; ++g)
      if (granules_[g].mapped) unmap(g);
  }

  device_granules* from_;
  const detail::cuda_driver* driver_;
  std::byte* data_ = nullptr;
  std::vector<granule_state> granules_;
  std::int64_t mapped_ = 0;
  std::int64_t wanted_ = 0;  // of these, not mapped, that a block will still take
  std::vector<cuda_event> readers_;
};

}  // namespace reshard
