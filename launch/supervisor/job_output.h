// What a launch shows and keeps: the ranks' lines, each with its rank before it, and its own.
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

// With a folder, there is for each start of the job FOLDER/start-0/: rank-0.log (both streams, without the prefix),
// processes (a line a rank: its host and process), mpirun.log and ranks.json; and FOLDER/launch.log with what the
// launch itself says.
class JobOutput {
 public:
  // ResourceError where the folder can't be written.
  explicit JobOutput(std::string folder);

  void begin_start(int number, int ranks);
  void rank_began(int rank, const std::string& host, const std::string& process);
  // Whole lines go to this process's stream of the same kind as "[2] line".
  void rank_bytes(int rank, Stream stream, const std::string& bytes);
  void rank_ended(int rank);  // a last line without a newline
  void mpirun_bytes(const std::string& bytes);
  void note(const std::string& line);  // "launch: line" on stderr
  void show_mpirun();                  // its last lines, where nobody else says what is wrong
  // The rank that called MPI_Abort by mpirun's words; -1 for none.
  int aborted_by() const { return aborted_by_; }
  // More lines wait for the terminal than should, or no longer.
  bool is_behind() const { return writer_.is_behind(); }
  bool has_caught_up() const { return writer_.has_caught_up(); }
  // Waits until all lines are written, until `give_up` returns true, which is polled every 50 ms, or until the seconds
  // of the last hurry() are over.
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
  double patience_ = std::numeric_limits<double>::infinity();  // with the reader of the lines, at the end
  OutputWriter writer_;
};

}  // namespace gantry::launcher
