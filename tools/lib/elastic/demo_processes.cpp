// SPDX-License-Identifier: Apache-2.0
#include "demo_processes.hpp"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <reshard/base/refusal.hpp>

namespace elastic {

using reshard::refuse;

held_signals::held_signals() {
  sigemptyset(&ends_);
  for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&ends_, s);
  sigprocmask(SIG_BLOCK, &ends_, &before_);
}
held_signals::~held_signals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

void held_signals::pause(int milliseconds) const {
  const timespec limit = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
  if (const int signal = sigtimedwait(&ends_, nullptr, &limit); signal > 0) throw told_to_end{signal};
}

job_folder::job_folder(const std::string& kept) : path_(kept), stays_(!kept.empty()) {
  std::error_code failed;
  if (stays_) {
    std::filesystem::create_directories(path_, failed);
    if (failed || !std::filesystem::is_empty(path_, failed) || failed)
      refuse("--keep: ", path_, failed ? " cannot be made or read" : " is not empty");
    return;
  }
  path_ = (std::filesystem::temp_directory_path() / "reshard-demo-XXXXXX").string();
  if (::mkdtemp(path_.data()) == nullptr) refuse("no folder can be made: ", path_);
}
job_folder::~job_folder() {
  std::error_code unheard;
  if (!stays_) std::filesystem::remove_all(path_, unheard);
}
void job_folder::write(const std::string& file, const std::string& text) const {
  if (!(std::ofstream(path_ + "/" + file, std::ios::app) << text << std::flush)) refuse(path_, " cannot be written");
}

process_list::~process_list() {
  for (auto& [name, p] : all_)
    if (!ended(name)) ::kill(p.pid, SIGKILL);
  for (auto& [name, p] : all_)
    while (!p.code && ::waitpid(p.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
}

void process_list::start(const std::string& name, std::vector<std::string> words) {
  words.insert(words.begin(), "elastic");
  std::vector<char*> arguments;
  for (std::string& w : words) arguments.push_back(w.data());
  arguments.push_back(nullptr);
  const std::string out = folder_.path() + "/" + name + ".out";
  const pid_t mine = ::getpid(), child = ::fork();
  if (child < 0) refuse("no process can be started");
  if (child > 0) {
    all_[name] = {child, {}};
    return;
  }
  // Whoever was killed before this line left a child that nobody would end: it sees that its parent is another.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != mine) ::_exit(1);
  ::setpgid(0, 0);
  sigprocmask(SIG_SETMASK, &held_.before(), nullptr);
  const int file = ::open(out.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644), none = ::open("/dev/null", O_RDONLY);
  ::dup2(none, 0), ::dup2(file, 1), ::dup2(file, 2);
  ::close(none), ::close(file);
  ::execv("/proc/self/exe", arguments.data());
  ::_exit(127);
}

std::optional<int> process_list::ended(const std::string& name) {
  one& p = all_.at(name);
  int status = 0;
  if (!p.code && ::waitpid(p.pid, &status, WNOHANG) == p.pid)
    p.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return p.code;
}

void process_list::kill(const std::string& name, int signal) {
  if (!ended(name)) ::kill(all_.at(name).pid, signal);
}

std::string process_list::printed(const std::string& name) const {
  std::ostringstream text;
  text << std::ifstream(folder_.path() + "/" + name + ".out").rdbuf();
  std::string all = text.str();
  while (!all.empty() && all.back() == '\n') all.pop_back();
  return all;
}

}  // namespace elastic
