// Every time that the supervision of a job waits for something, in seconds, with the reason for its value. What users
// set stands in the configuration (comm.*) and in the flags of `gantry launch`.
#pragma once

#include "gantry/core/host/last_act.h"

namespace gantry::control {

// --- Connections ---
// A TCP connection over a network that works is there in less than one; three lost packets cost 1 + 2 s more.
inline constexpr double kConnectSeconds = 5;
// For whoever has connected to say hello, which it does at once; beyond this it is none of the job's.
inline constexpr double kHandshakeSeconds = 5;
// Before another attempt to connect, and to accept where there are no descriptors left: nobody notices the wait.
inline constexpr double kRetrySeconds = 0.2;
// For the launch to give a shim its command: it does at once, unless a crowd of others keeps the shim out, which must
// go after kHandshakeSeconds.
inline constexpr double kCommandSeconds = 30;
// Over several hosts the kernel gives a silent peer up after 5 + 5 * 2 = 15 s, as comm.lost_after_seconds has it by
// default, and one that confirms nothing too.
inline constexpr int kNetworkSilentSeconds = 5, kProbeSeconds = 2, kProbes = 5;
inline constexpr int kUnconfirmedSeconds = kNetworkSilentSeconds + kProbes * kProbeSeconds;

// For a plane's last frames to leave before its thread ends, whatever the other ends take.
inline constexpr double kCloseSeconds = 2;

// --- Signs of life ---
// Between a shim's signs of life: the default of comm.heartbeat_seconds.
inline constexpr double kShimBeatSeconds = 1;
// That a shim may be silent at least, however short --stopped-seconds is: a loaded machine delays a few beats.
inline constexpr double kLeastShimSilence = 5;
// For the reader of the launch's output to take the last lines, after a signal has asked the job to stop.
inline constexpr double kReaderSeconds = 5;
// Interval at which a launch that has paused its ranks checks whether their output has been written.
inline constexpr double kOutputLookSeconds = 0.02;
// For a launch that has slept itself to read that a program goes on, before it judges that it stood still for too long.
inline constexpr double kReadFirstSeconds = 0.1;
// Between the hub's looks at who has left, where there are no heartbeats (comm.heartbeat_seconds 0).
inline constexpr double kHubLookSeconds = 1;

// --- The end of a job under `gantry launch` ---
// For the launch to take a shim's last report, before the end of the shim tells mpirun of it.
inline constexpr double kExitReportSeconds = 3;
// For a shim to say how its program ended, once the program's own connection has closed: it does within milliseconds.
inline constexpr double kReportSeconds = 1;
// A program that stood still so recently was woken by mpirun, which does so with what it is about to end.
inline constexpr double kJustWokenSeconds = 3;
// After the first failure mpirun ends the others. The ranks left are then killed, then mpirun is notified, then killed:
// three seconds each, which its own way takes (a second from SIGTERM to SIGKILL, and what Open MPI cleans up).
inline constexpr double kKillRanksAfter = 3, kTellMpirunAfter = 6, kKillMpirunAfter = 9, kGiveUpAfter = 12;

// --- Whose word counts ---
// How much longer others wait for the start and the end than rank 0, whose line names the missing ranks.
inline constexpr double kHubFirstSeconds = 3;
// For the hub to say who is late, which its own thread does whatever its rank's work is.
inline constexpr double kAnswerSeconds = 1;
// For the hub to say whose failure stands, a round trip. Where it does not, a rank goes by its own.
inline constexpr double kVerdictSeconds = 0.5;
// For the control plane to say why a connection between ranks has ended, which it knows better: a shim's report takes
// up to kReportSeconds. Beyond this the waits for that rank fail by themselves.
inline constexpr double kBrokenSeconds = 3;
// How much longer than a group's first member the others wait to make it: had that one been there, it would have named
// who is missing.
inline constexpr double kFirstMemberSeconds = 1;
// For what a rank sent before it ended to come, from the moment at which others hear that it did.
inline constexpr double kLastMessagesSeconds = 3;

// --- The end of a job of processes ---
// For the rank whose failure stands to print it, to run its last act and to end all processes; then this one does.
inline constexpr double kOthersEndSeconds = kLastActSeconds + 5;
// The same where this rank's own thread does not notice: longer, so that a rank that notices has the first word.
inline constexpr double kStuckRankSeconds = kOthersEndSeconds + 2;
// Every rank finds for itself that rank 0 is lost: rank 1 says so, and each further one only where nobody has by then.
inline constexpr double kSecondVoiceSeconds = 1.5, kNextVoiceSeconds = 0.2;
// For the control plane's last frame, and for other ranks to write their flight records, before MPI_Abort.
inline constexpr double kLastWordsSeconds = 0.3;
// For MPI_Abort to end the process, which another thread that is blocked in MPI may hold up. Then it ends without, and
// the launcher ends the others, since one has ended without MPI_Finalize.
inline constexpr double kAbortSeconds = 3;

}  // namespace gantry::control
