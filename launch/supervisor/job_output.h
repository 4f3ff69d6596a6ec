// The output that a launch prints and logs: the ranks' lines, each with its rank as a prefix, and its own
// lines.
#pragma once

#include <deque>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "gantry/launch/supervisor/line_splitter.h"
#include "gantry/launch/supervisor/output_writer.h"
#include "gantry/launch/supervisor/rank_end.h"

namespace gantry::launcher {

// If a directory is given, each start of the job has a directory FOLDER/start-0/. It contains rank-0.log
// (both streams, without the prefix), processes (one line per rank: its host and process), mpirun.log and
// ranks.json. The launch's own messages are in FOLDER/launch.log.
class JobOutput {
 public:
  // Throws ResourceError if the directory cannot be written.
  explicit JobOutput(std::string folder);

  void begin_start(int number, int ranks);
  void rank_began(int rank, const std::string& host, const std::string& process);
  // Prints complete lines as "[2] line" on this process's stream of the same kind.
  void rank_bytes(int rank, Stream stream, const std::string& bytes);
  void rank_ended(int rank);  // prints a last line that has no newline
  void mpirun_bytes(const std::string& bytes);
  void note(const std::string& line);  // prints "launch: line" on stderr
  void show_mpirun();                  // prints mpirun's last lines, if no rank has reported a cause
  // Returns the rank that called MPI_Abort, according to mpirun's output; -1 for none.
  int aborted_by() const { return aborted_by_; }
  // is_behind(): too many lines wait for the terminal. has_caught_up(): few enough wait.
  bool is_behind() const { return writer_.is_behind(); }
  bool has_caught_up() const { return writer_.has_caught_up(); }
  // Waits until all lines are written, until `give_up` returns true, which is polled every 50 ms, or until
  // the time of the last hurry() has passed.
  void finish(const std::function<bool()>& give_up);
  void hurry(double seconds) { patience_ = seconds; }
  void error(const std::string& line) { writer_.write(Stream::kErr, "error: " + line + "\n"); }
  void write_ends(const JobEnd& end);

 private:
  void show(int rank, Stream stream, const std::vector<std::string>& lines);
  void take_mpirun_lines(const std::vector<std::string>& lines);
  std::string start_folder() const;

  std::string folder_;
  int start_ = 0;
  std::map<std::pair<int, Stream>, LineSplitter> lines_;
  std::vector<std::ofstream> logs_;
  std::ofstream launch_log_, mpirun_log_, processes_;
  LineSplitter mpirun_lines_;
  std::deque<std::string> last_mpirun_lines_;
  int aborted_by_ = -1;
  double patience_ = std::numeric_limits<double>::infinity();  // time limit for the final output
  OutputWriter writer_;
};

}  // namespace gantry::launcher
