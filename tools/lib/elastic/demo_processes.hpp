// SPDX-License-Identifier: Apache-2.0
// Processes of this program, and the folder that they write to: neither outlives who made them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>
#include <csignal>

namespace elastic {

/// The demo was told to end.
struct told_to_end {
  int signal;
};

/// While it lives, SIGINT, SIGTERM, SIGHUP and SIGQUIT end nothing by themselves: `pause` throws them.
class held_signals {
 public:
  held_signals();
  held_signals(const held_signals&) = delete;
  ~held_signals();
  /// Waits for so long.
  void pause(int milliseconds) const;
  const sigset_t& before() const { return before_; }

 private:
  sigset_t ends_, before_;
};

/// A folder of its own, removed with it; or one that was named, is made and stays. Refused: a named one with files.
class job_folder {
 public:
  explicit job_folder(const std::string& kept);
  job_folder(const job_folder&) = delete;
  ~job_folder();
  const std::string& path() const { return path_; }
  void write(const std::string& file, const std::string& text) const;

 private:
  std::string path_;
  bool stays_;
};

class process_list {
 public:
  process_list(const held_signals& held, const job_folder& folder) : held_(held), folder_(folder) {}
  process_list(const process_list&) = delete;
  /// Kills and reaps what runs. Where this process is killed itself, the kernel kills them (PR_SET_PDEATHSIG).
  ~process_list();

  /// This program with other words, what it prints in FOLDER/NAME.out; it leads a process group, so that a terminal's
  /// Ctrl-C is its parent's alone.
  void start(const std::string& name, std::vector<std::string> words);
  /// Its exit code, or the negative signal that ended it; nothing while it runs.
  std::optional<int> ended(const std::string& name);
  void kill(const std::string& name, int signal);
  std::string printed(const std::string& name) const;

 private:
  struct one {
    pid_t pid;
    std::optional<int> code;
  };
  const held_signals& held_;
  const job_folder& folder_;
  std::map<std::string, one> all_;
};

}  // namespace elastic
