// SPDX-License-Identifier: Apache-2.0
#include "ask.hpp"

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>

#include <reshard/elastic/job_keys.hpp>
#include <reshard/elastic/record_text.hpp>
#include <reshard/elastic/request.hpp>
#include <reshard/io/record_json.hpp>
#include <reshard/io/text_output.hpp>

#include "store_of.hpp"

namespace elastic {

using namespace reshard;

int run_ask(const ask_words& w) {
  const job_keys keys(w.job);
  const job_request asked = parse_request(member_name(w.id), w.words);
  const std::string request = keys.requests() + w.id, answer = keys.answers() + w.id;
  const std::unique_ptr<named_store> opened = store_of(w.store);
  const any_store store = opened->any();
  bool said = false;
  std::uint64_t after = 0;
  for (;;) {
    try {
      if (!said) {
        const std::optional<stored> before = store.read(request);
        if (before && before->value != stored_text(asked))
          refuse("ask: ", w.id, " is another request: ", to_text(request_of(before->value)));
        if (!before) store.swap(request, stored_text(asked), no_revision);
        said = store.read(request).has_value();
      }
      if (const std::optional<stored> there = store.read(answer)) {
        std::printf("%s\n", there->value.c_str());
        return there->value == "done" ? 0 : 1;
      }
      const std::optional<stored> record = store.read(keys.record());
      if (const job_phase phase = record ? record_of(record->value).phase : job_phase::founding; is_end(phase)) {
        // Its members may be gone: who asks writes what they would answer.
        store.swap(answer,
                   to_text(request_answer{answer_kind::refused, reshard::detail::text_of("the job is ", name(phase))}),
                   no_revision);
        continue;
      }
      after = store.changes(answer, after, std::chrono::milliseconds(500)).revision;
    } catch (const store_unreachable&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
}

int run_status(const ask_words& w) {
  const std::unique_ptr<named_store> opened = store_of(w.store);
  const std::optional<stored> record = opened->any().read(job_keys(w.job).record());
  if (!record) {
    std::fprintf(stderr, "reshard: job %s has no record\n", w.job.c_str());
    return 1;
  }
  io::text_output out;
  io::write_record_json(out, record_of(record->value));
  std::fputs(std::string(out.text()).c_str(), stdout);
  return 0;
}

}  // namespace elastic
