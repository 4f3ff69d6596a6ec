// The flight recorder of this process: the rings of the ranks that it runs, and when they are written to files.
//
// They are written when the job fails, on SIGUSR2, and by write_flight_records(). A thread of its own answers the
// signal, so that it works whatever the ranks do. In a job of several processes who writes also leaves a request in the
// folder, which the threads of the others look for every tenth of a second: as far as they share the folder, ranks that
// sleep or compute write too.
//
// SIGUSR2 is caught from the first recorded launch to the end of the process, unless the program has set a handler of
// its own (or SIG_IGN) before; it may then call write_flight_records() itself.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "gantry/diagnosis/flight_records.h"
#include "gantry/diagnosis/rank_recorder.h"

namespace gantry::recorder {

struct JobSettings {
  std::string folder;  // for the files; made when they are written
  int ranks = 1;
  int entries = 1024;              // a rank
  bool several_processes = false;  // of the job
  // What the files in a folder say of who waited for whom, for print_recorder_hint(); "" if nothing. Throws nothing.
  std::function<std::string(const std::string& folder)> sentence_of = {};
};

// The job that is recorded: at most one at a time in a process; others that run beside it are not. Its records stay
// until the next one begins, since ranks of other processes may ask for them until this one is over.
class RecordedJob {
 public:
  explicit RecordedJob(const JobSettings& settings);
  ~RecordedJob();
  RecordedJob(const RecordedJob&) = delete;
  RecordedJob& operator=(const RecordedJob&) = delete;

 private:
  bool mine_;  // this is the one that is recorded
};

// The ring of a rank of the job that is recorded; null if none is. `who` needs rank, name, backend and timeout.
std::shared_ptr<RankRecorder> record_rank(Identity who);

// What a launcher calls when the job fails, before it ends the process or other ranks do: writes the files. Nothing for
// a job of one rank, or an error that is not of the job but of what it was given (usage, configuration, input,
// checkpoint) or a stop on request: its line says all.
void record_failure(int exit_code, const std::string& error);
// Once a job, after the error's line: one line to stderr with the folder and the command that reads it, if
// record_failure() has written there for a rank that was waited for in vain (exit code 7). Other errors say all.
void print_recorder_hint();

}  // namespace gantry::recorder
