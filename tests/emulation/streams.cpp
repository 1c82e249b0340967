// SPDX-License-Identifier: Apache-2.0
// The threads of streams, and waiting for them.
#include "streams.hpp"

#include <map>
#include <thread>

#include "emulation.hpp"
#include "memory.hpp"
#include "runtime.hpp"

namespace emulation {
namespace {

struct all_streams {
  std::mutex lock;
  std::condition_variable changed;
  std::vector<CUstream_st*> streams;  // those of the host's making, and the default ones of devices
  std::vector<CUstream_st*> defaults;
  std::vector<CUevent_st*> events;
  std::vector<std::string> loaded;
  std::map<const void*, host_twin> twins;
  std::uint64_t issued = 0, started = 0;
  std::size_t made = 0, events_made = 0;
};
all_streams& all() {
  static all_streams* these = new all_streams;
  return *these;
}

bool all_done(const std::vector<ticket_ptr>& tickets) {
  for (const ticket_ptr& t : tickets)
    if (!t->done) return false;
  return true;
}
/// The loop of a stream's thread.
void carry_out(CUstream_st* stream, std::uint64_t name) {
  is_device_thread();
  dice random(name);
  static const bool one_queue = setting("EMULATION_QUEUES", 0) == 1;
  std::unique_lock hold(all().lock);
  while (true) {
    all().changed.wait(hold, [&] { return !stream->queue.empty() || !stream->alive; });
    if (stream->queue.empty()) return;
    work& piece = stream->queue.front();  // stays where it is: a deque, and only this thread pops
    stream->doing = piece.what;
    if (one_queue) {
      all().changed.wait(hold, [&] { return all().started + 1 == piece.number; });
      all().changed.wait(hold, [&] { return all_done(piece.after); });
      all().started = piece.number;
      all().changed.notify_all();
    } else {
      all().changed.wait(hold, [&] { return all_done(piece.after); });
    }
    hold.unlock();
    if (piece.run) take_time(random);
    if (piece.run) piece.run();
    hold.lock();
    piece.end->done = true;
    piece.end->at = clock::now();
    stream->queue.pop_front();
    stream->doing.clear();
    all().changed.notify_all();
  }
}
CUstream_st* start(unsigned flags) {
  const std::uint64_t name = next_name();
  auto* stream = new CUstream_st{all().made++, flags, current_device(), true, 0, std::make_shared<ticket>(), {}, {}};
  stream->tail->done = true;
  std::thread(carry_out, stream, name).detach();
  return stream;
}
/// The default stream of the current device; made under the lock.
CUstream_st* default_stream() {
  for (CUstream_st* s : all().defaults)
    if (s->device == current_device()) return s;
  all().defaults.push_back(start(cudaStreamDefault));
  return all().defaults.back();
}
bool is_default(const CUstream_st* stream) {
  for (const CUstream_st* s : all().defaults)
    if (s == stream) return true;
  return false;
}
/// The default stream and those that did not say otherwise wait for each other.
void join_default(CUstream_st* stream, work& piece) {
  if (stream->flags == cudaStreamNonBlocking) return;
  const bool from_default = is_default(stream);
  for (const auto* list : {&all().streams, &all().defaults})
    for (CUstream_st* s : *list)
      if (s != stream && s->flags != cudaStreamNonBlocking && (from_default || is_default(s)))
        piece.after.push_back(s->tail);
}
std::string stuck_with(const std::vector<ticket_ptr>& tickets) {
  std::string words;
  for (const auto* list : {&all().streams, &all().defaults})
    for (const CUstream_st* s : *list)
      if (!s->doing.empty())
        words += (words.empty() ? "" : "; ") + ("stream " + std::to_string(s->number)) + " is at " + s->doing;
  return words.empty() ? plural(tickets.size(), "piece") + " of work" : words;
}

}  // namespace

std::mutex& streams_lock() { return all().lock; }
std::condition_variable& streams_changed() { return all().changed; }

CUstream_st* stream_of(cudaStream_t handle, const char* caller) {
  const std::lock_guard hold(all().lock);
  if (handle == nullptr || handle == cudaStreamLegacy) return default_stream();
  if (handle == cudaStreamPerThread) stop(std::string(caller) + ": per-thread default streams are not emulated");
  for (CUstream_st* s : all().streams)
    if (s == handle) {
      if (!s->alive) stop(std::string(caller) + " uses stream " + std::to_string(s->number) + ", which was destroyed");
      return s;
    }
  stop(std::string(caller) + " uses " + address_text(handle) + ", which is no stream");
}
CUevent_st* event_of(cudaEvent_t handle, const char* caller) {
  const std::lock_guard hold(all().lock);
  for (CUevent_st* e : all().events)
    if (e == handle) {
      if (!e->alive) stop(std::string(caller) + " uses event " + std::to_string(e->number) + ", which was destroyed");
      return e;
    }
  stop(std::string(caller) + " uses " + address_text(handle) + ", which is no event");
}
CUstream_st* make_stream(unsigned flags) {
  const std::lock_guard hold(all().lock);
  all().streams.push_back(start(flags));
  return all().streams.back();
}
void destroy_stream(CUstream_st* stream) {
  const std::lock_guard hold(all().lock);
  if (stream->groups_in_progress > 0)
    stop("cudaStreamDestroy: a group of NCCL is on its way to stream " + std::to_string(stream->number));
  stream->alive = false;  // what is issued still ends
  all().changed.notify_all();
}
CUevent_st* make_event(unsigned flags) {
  const std::lock_guard hold(all().lock);
  all().events.push_back(new CUevent_st{all().events_made++, flags, true, nullptr});
  return all().events.back();
}

ticket_ptr issue(CUstream_st* stream, work piece, const char* caller, bool is_the_group) {
  const std::lock_guard hold(all().lock);
  if (stream->groups_in_progress > 0 && !is_the_group)
    stop(std::string(caller) + " issues work to stream " + std::to_string(stream->number) +
         ", to which a group of NCCL is still on its way: its communicator is ncclInProgress");
  piece.end = std::make_shared<ticket>();
  piece.number = ++all().issued;
  join_default(stream, piece);
  stream->tail = piece.end;
  const ticket_ptr end = piece.end;
  stream->queue.push_back(std::move(piece));
  all().changed.notify_all();
  return end;
}
std::vector<ticket_ptr> unfinished(CUstream_st* stream) {
  const std::lock_guard hold(all().lock);
  std::vector<ticket_ptr> list;
  if (!stream->tail->done) list.push_back(stream->tail);
  if (is_default(stream))
    for (CUstream_st* s : all().streams)
      if (s->flags != cudaStreamNonBlocking && !s->tail->done) list.push_back(s->tail);
  return list;
}
std::vector<ticket_ptr> unfinished() {
  const std::lock_guard hold(all().lock);
  std::vector<ticket_ptr> list;
  for (const auto* each : {&all().streams, &all().defaults})
    for (CUstream_st* s : *each)
      if (s->device == current_device() && !s->tail->done) list.push_back(s->tail);
  return list;
}
bool ended(const ticket_ptr& t) {
  const std::lock_guard hold(all().lock);
  return t == nullptr || t->done;
}
void wait_for(const std::vector<ticket_ptr>& tickets, const std::string& caller) {
  std::unique_lock hold(all().lock);
  const auto until = clock::now() + patience();
  if (all().changed.wait_until(hold, until, [&] { return all_done(tickets); })) return;
  const long ms = std::chrono::duration_cast<std::chrono::milliseconds>(patience()).count();
  stop(caller + " has waited " + std::to_string(ms) +
       " ms for its device, which may wait for this host in a circle: " + stuck_with(tickets));
}
void drain(const std::string& caller) { wait_for(unfinished(), caller); }
bool only_pinned_waits() {
  static const bool only = setting_is("EMULATION_SYNC", "pinned");
  return only;
}
void may_drain(draining why, const char* caller) {
  if (only_pinned_waits()) {
    if (std::string(caller).find("Host") != std::string::npos)
      drain(std::string(caller) + ", which waits for the whole device,");
    return;
  }
  static const bool always = setting_is("EMULATION_SYNC", "always"), never = setting_is("EMULATION_SYNC", "never");
  const bool waits = why == draining::mapping ? draw(4) != 0 : draw(2) != 0;
  if (always || (waits && !never)) drain(std::string(caller) + ", which waits for the whole device,");
}

bool twin(const void* kernel, host_twin of) {
  const std::lock_guard hold(all().lock);
  return all().twins.insert_or_assign(kernel, std::move(of)).second;
}
std::optional<host_twin> twin_of(const void* kernel) {
  const std::lock_guard hold(all().lock);
  const auto found = all().twins.find(kernel);
  return found == all().twins.end() ? std::nullopt : std::optional(found->second);
}
cudaError_t launch(cudaStream_t stream, const char* kernel, std::function<void()> body) {
  EMULATED_IN_CONTEXT(launch, cudaErrorLaunchOutOfResources);
  if (failure != 0) return answer(failure);
  CUstream_st* on = stream_of(stream, kernel);
  bool first = true;
  {
    const std::lock_guard hold(all().lock);
    for (const std::string& k : all().loaded) first = first && k != kernel;
    if (first) all().loaded.push_back(kernel);
  }
  if (first) may_drain(draining::mapping, (std::string("the first launch of ") + kernel).c_str());
  issue(on, {"the kernel " + std::string(kernel), {}, std::move(body)}, kernel);
  return cudaSuccess;
}
void enqueue(cudaStream_t stream, std::function<void()> body) {
  issue(stream_of(stream, "a test"), {"a test's own work", {}, std::move(body)}, "a test");
}

std::vector<std::string> stream_leaks() {
  const std::lock_guard hold(all().lock);
  std::vector<std::string> left;
  for (const CUstream_st* s : all().streams)
    if (s->alive) left.push_back("stream " + std::to_string(s->number) + " was not destroyed");
  for (const CUevent_st* e : all().events)
    if (e->alive) left.push_back("event " + std::to_string(e->number) + " was not destroyed");
  for (const auto* list : {&all().streams, &all().defaults})
    for (const CUstream_st* s : *list)
      if (!s->tail->done)
        left.push_back("work on stream " + std::to_string(s->number) + " has not ended" +
                       (s->doing.empty() ? "" : ": " + s->doing));
  return left;
}

}  // namespace emulation
