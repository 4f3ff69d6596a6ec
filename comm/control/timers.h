// Every time limit and interval in the supervision of a job, in seconds, with the reason for its value.
// Values that users can set are in the configuration (comm.*) and in the flags of `gantry launch`.
#pragma once

#include "gantry/core/host/last_act.h"

namespace gantry::control {

// --- Connections ---
// A TCP connection over a working network takes less than one second; three lost packets add 1 + 2 s.
inline constexpr double kConnectSeconds = 5;
// Time for a new connection to send its hello, which a peer of the job does at once. A slower connection does
// not belong to the job.
inline constexpr double kHandshakeSeconds = 5;
// Pause before another attempt to connect, and to accept if no descriptors are left: short enough to go
// unnoticed.
inline constexpr double kRetrySeconds = 0.2;
// Time for the launch to send a shim its command. The launch does so at once, unless many other connections
// keep the shim out; these are dropped after kHandshakeSeconds.
inline constexpr double kCommandSeconds = 30;
// Between hosts, the kernel closes the connection to a peer that is silent for 5 + 5 * 2 = 15 s (the default
// of comm.lost_after_seconds), or that does not acknowledge sent data for as long.
inline constexpr int kNetworkSilentSeconds = 5, kProbeSeconds = 2, kProbes = 5;
inline constexpr int kUnconfirmedSeconds = kNetworkSilentSeconds + kProbes * kProbeSeconds;

// Time for the last frames of a control plane to be sent before its thread ends, even if the peers do not
// read them.
inline constexpr double kCloseSeconds = 2;

// --- Heartbeats ---
// Interval of the heartbeats of a shim: the default of comm.heartbeat_seconds.
inline constexpr double kShimBeatSeconds = 1;
// Minimum time that a shim may be silent, even if --stopped-seconds is shorter: a loaded machine delays a few
// heartbeats.
inline constexpr double kLeastShimSilence = 5;
// Time for the reader of the launch's output to take the last lines, after a signal has asked the job to
// stop.
inline constexpr double kReaderSeconds = 5;
// Interval at which a launch that has paused its ranks checks whether their output has been written.
inline constexpr double kOutputLookSeconds = 0.02;
// Time for a launch that was itself suspended to read that a program runs again, before it concludes that the
// program was stopped for too long.
inline constexpr double kReadFirstSeconds = 0.1;
// Interval at which the hub reports ranks that have left, if there are no heartbeats (comm.heartbeat_seconds
// 0).
inline constexpr double kHubLookSeconds = 1;

// --- The end of a job under `gantry launch` ---
// Time for the launch to read a shim's last output and report, before mpirun learns of the shim's end. A loaded
// machine delays it, and a terminal may suspend the launch for a moment.
inline constexpr double kExitReportSeconds = 60;
// Time for a shim to report how its program ended, after the program's own connection has closed. It takes
// milliseconds.
inline constexpr double kReportSeconds = 1;
// mpirun wakes the stopped programs that it is about to end. A program that was stopped or woken within this
// time before its end counts as stopped.
inline constexpr double kJustWokenSeconds = 3;
// After the first failure mpirun ends the other ranks. The remaining ranks are then killed, then mpirun is
// asked to end, then killed. Each step has three seconds, the time that mpirun itself needs (one second from
// SIGTERM to SIGKILL, and Open MPI's cleanup).
inline constexpr double kKillRanksAfter = 3, kTellMpirunAfter = 6, kKillMpirunAfter = 9, kGiveUpAfter = 12;

// --- Which failure is reported ---
// Additional time for which other ranks than rank 0 wait for the start and the end, because the error of rank
// 0 names the missing ranks.
inline constexpr double kHubFirstSeconds = 3;
// Time for the hub to answer which ranks are late. Its own thread answers, even if its rank is busy.
inline constexpr double kAnswerSeconds = 1;
// Time for the hub to answer which failure counts: one round trip. Without an answer, a rank uses its own
// failure.
inline constexpr double kVerdictSeconds = 0.5;
// Time for the control plane to report why a connection between ranks has ended, since it knows the reason
// better. A shim's report takes up to kReportSeconds. After this time the waits for that rank fail by
// themselves.
inline constexpr double kBrokenSeconds = 3;
// Additional time for which the other members of a group wait for its creation, because the error of the
// first member names the missing ranks.
inline constexpr double kFirstMemberSeconds = 1;
// Time for the messages that a rank sent before it ended to arrive, counted from the report of its end to the
// others.
inline constexpr double kLastMessagesSeconds = 3;

// --- The end of a job of processes ---
// Time for the rank whose failure counts to print it, to run its last act and to end all processes. After it
// this rank ends them.
inline constexpr double kOthersEndSeconds = kLastActSeconds + 5;
// The same if the control plane reports the failure while this rank's own thread may not notice it: longer,
// so that a rank that notices acts first.
inline constexpr double kStuckRankSeconds = kOthersEndSeconds + 2;
// Every other rank detects the loss of rank 0 by itself. Rank 1 reports it; each further rank waits for this
// time, and reports it only if no lower rank has done so.
inline constexpr double kSecondVoiceSeconds = 1.5, kNextVoiceSeconds = 0.2;
// Time for the control plane's last frame to be sent, and for other ranks to write their flight records,
// before MPI_Abort.
inline constexpr double kLastWordsSeconds = 0.3;
// Time for MPI_Abort to end the process; another thread that is blocked in MPI may delay it. After this time
// the process ends without it. The launcher then ends the others, because a process has ended without
// MPI_Finalize.
inline constexpr double kAbortSeconds = 3;

}  // namespace gantry::control
