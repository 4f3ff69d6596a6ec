// The flight recorder of this process: the rings of its ranks, and the events that write them to files.
//
// The files are written when the job fails, on SIGUSR2, and by write_flight_records(). A separate thread answers the
// signal, so that it works in any state of the ranks. In a job of several processes, the writing process also asks the
// others for their records, by the control plane. Their threads answer, also while the ranks sleep or compute.
//
// SIGUSR2 is caught from the first recorded launch to the end of the process, unless the program has set a handler of
// its own (or SIG_IGN) before; such a program may call write_flight_records() itself.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "gantry/diagnosis/flight_records.h"
#include "gantry/diagnosis/rank_recorder.h"

namespace gantry::recorder {

struct JobSettings {
  std::string folder;  // for the files; created on the first write
  int ranks = 1;
  int entries = 1024;              // one entry per rank
  bool several_processes = false;  // then suspensions of this process are noted
  // The diagnosis of the files in a folder, for print_recorder_hint(); "" if there is none. Does not throw.
  std::function<std::string(const std::string& folder)> sentence_of = {};
};

// The recorded job: at most one at a time in a process; other jobs that run concurrently are not recorded. Its records
// are kept until the next one begins, because ranks of other processes may request them until this job is over.
class RecordedJob {
 public:
  explicit RecordedJob(const JobSettings& settings);
  ~RecordedJob();
  RecordedJob(const RecordedJob&) = delete;
  RecordedJob& operator=(const RecordedJob&) = delete;

 private:
  bool mine_;  // whether this job is the recorded one
};

// How this process asks the other processes of the job for their records; {}: it cannot. `ask` may be called from any
// thread, and must return at once. Once set_record_requests() has returned, the former one is not called any more.
void set_record_requests(std::function<void()> ask);
// Another process of the job has asked: the recorder's thread writes the files. Returns at once.
void answer_record_request();

// The ring of a rank of the recorded job; null if no job is recorded. `who` needs rank, name, backend and timeout.
std::shared_ptr<RankRecorder> record_rank(Identity who);

// Called by a launcher when the job fails, before it ends the process or other ranks do. Writes the files. Does nothing
// for a job of one rank, for errors in the input of the job (usage, configuration, input, checkpoint), and for a stop
// on request, because the error line of these is sufficient.
void record_failure(int exit_code, const std::string& error);
// Called once per job, after the error line. Prints one line to stderr with the folder and the command that reads it,
// if record_failure() has written files there because a wait for another rank failed (exit code 7). The lines of other
// errors are sufficient.
void print_recorder_hint();

}  // namespace gantry::recorder
