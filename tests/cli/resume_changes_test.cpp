// Changes that a resumed run of `gantry train` may make, and checkpoints of an earlier run.
#include <filesystem>

#include "gantry/checkpoint/format/sampled_content.h"
#include "resume_case.h"

namespace gantry::testing {
namespace {

TEST(ResumeChanges, AnotherModelOfTheSameShapesIsRefused) {
  const ScratchFolder scratch;
  const std::string config = write_saved_run(scratch, "run");
  const auto resume = [&](const std::string& sets) {
    return run_program(train_line(scratch, config, "run", "--set checkpoint.resume=auto --set train.steps=5 " + sets));
  };
  const Outcome other = resume("--set model.config.n_head=4");
  EXPECT_EQ(other.exit_code, 5) << other.err;
  EXPECT_EQ(other.err, fmt::format("error: {}: the checkpoint is from a model with n_head 2; expected n_head 4, as in "
                                   "this run; use the checkpoint's "
                                   "model; layout, schedule, batch size, learning rate and steps may change\n",
                                   scratch / "run/c/step-000004"));
  const Outcome family = resume(
      "--set model.policy=llama --set 'model.config={hidden_size: 16, num_attention_heads: 2, num_hidden_layers: 1, "
      "intermediate_size: 16, vocab_size: 256, max_position_embeddings: 32}'");
  EXPECT_EQ(family.exit_code, 5) << family.err;
  EXPECT_NE(family.err.find("the checkpoint is from a model with the policy 'gpt2'; expected 'llama', as in this run"),
            std::string::npos)
      << family.err;
  // Allowed changes of the model: another dropout, an explicit default.
  const Outcome same = resume("--set model.config.resid_pdrop=0.2 --set model.config.layer_norm_epsilon=1.0e-5");
  EXPECT_EQ(same.exit_code, 0) << same.err;
}

// Lion has a state with the name of one of AdamW's.
TEST(ResumeChanges, AnotherClassOfOptimizerIsRefused) {
  const ScratchFolder scratch;
  const std::string config = write_saved_run(scratch, "run");
  const auto resume = [&](const std::string& name) {
    return run_program(train_line(scratch, config, "run",
                                  "--set checkpoint.resume=auto --set train.steps=5 --set optimizer.name=" + name));
  };
  for (const std::string name : {"lion", "sgd", "muon"}) {
    const Outcome refused = resume(name);
    EXPECT_EQ(refused.exit_code, 5) << refused.err;
    EXPECT_EQ(refused.err,
              fmt::format("error: {}: the checkpoint has the state of optimizer.name adamw; expected {}, as "
                          "in this run; use the checkpoint's optimizer.name, or set checkpoint.load to "
                          "start a new run from its weights\n",
                          scratch / "run/c/step-000004", name));
  }
  const Outcome kept = resume("adamw8bit");
  EXPECT_EQ(kept.exit_code, 0) << kept.err;
}

// Samples would be skipped or repeated: refused unless that is allowed, and then said.
TEST(ResumeChanges, ChangedDataOrOrderIsRefusedUnlessItIsAllowed) {
  const ScratchFolder scratch;
  const std::string config = write_saved_run(scratch, "run"), step = scratch / "run/c/step-000004",
                    text = scratch / "text.txt";
  const auto content_of = [](const std::string& path) { return sample_content({path}).hash.substr(0, 8); };
  run_program("cp -r " + (scratch / "run") + " " + (scratch / "kept"));
  const std::string other = scratch.write("other.txt", std::string(4000, 'a'));
  const auto resume = [&](const std::string& sets) {
    run_program(fmt::format("rm -r {0}; cp -r {1} {0}", scratch / "run", scratch / "kept"));
    return run_program(train_line(scratch, config, "run", "--set checkpoint.resume=auto --set train.steps=5 " + sets));
  };
  const auto expect_refused = [&](const std::string& sets, const std::string& what) {
    SCOPED_TRACE(sets);
    const Outcome refused = resume(sets);
    EXPECT_EQ(refused.exit_code, 5) << refused.err;
    EXPECT_EQ(refused.err, "error: " + step + ": the checkpoint was made with " + what +
                               ": samples would be skipped or repeated; expected the data and the order that the "
                               "checkpoint was made with; restore these keys, or set checkpoint.allow_changes: true\n");
    const Outcome allowed = resume(sets + " --set checkpoint.allow_changes=true");
    EXPECT_EQ(allowed.exit_code, 0) << allowed.err;
    EXPECT_NE(allowed.err.find("warning: the checkpoint was made with "), std::string::npos) << allowed.err;
  };
  expect_refused("--set train.seed=7", "train.seed 1, and this run has 7");
  expect_refused("--set data.shuffle=false", "data.shuffle true, and this run has false");
  expect_refused("--set data.sequence_length=16", "data.sequence_length 32, and this run has 16");
  expect_refused(
      "--set data.path=" + other,
      fmt::format("data.path {} (3000 bytes, content {}), and this run has {} (4000 bytes, content {}); with "
                  "number of samples 93, and this run has 124",
                  text, content_of(text), other, content_of(other)));
  const Outcome same = resume("--set data.batch_size=8 --set data.prefetch=0");
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_EQ(same.err, "");
  // The same data under other names.
  std::filesystem::create_symlink(text, scratch / "link.txt");
  run_program("cp " + text + " " + (scratch / "copy.txt"));
  for (const std::string& spelled : {scratch / "link.txt", scratch / "copy.txt", scratch.path() + "/./text.txt"}) {
    const Outcome moved = resume("--set data.path=" + spelled);
    EXPECT_EQ(moved.exit_code, 0) << moved.err;
    EXPECT_EQ(moved.err, "");
  }
  // A byte changes in place, with the size and the time of the last change kept.
  const std::string before = content_of(text);
  run_program("touch -r " + text + " " + (scratch / "time") + "; printf X | dd of=" + text +
              " bs=1 seek=1500 conv=notrunc; touch -r " + (scratch / "time") + " " + text);
  expect_refused(
      "", fmt::format("data.path {0} (3000 bytes, content {1}), and this run has {0} (3000 bytes, content {2})", text,
                      before, content_of(text)));
  run_program("cp " + (scratch / "copy.txt") + " " + text +
              "; echo more of the same text, so that there are more samples >> " + text);
  expect_refused("", fmt::format("data.path {0} (3000 bytes, content {1}), and this run has {0} ({3} bytes, content "
                                 "{2}); with number of samples 93, and this run has 95",
                                 text, before, content_of(text), std::filesystem::file_size(text)));
}

// Unshuffled data that have grown continue, unless their beginning has changed too.
TEST(ResumeChanges, DataThatHaveGrownMustBeginAsBefore) {
  const ScratchFolder scratch;
  const std::string config = write_saved_run(scratch, "run"), text = scratch / "text.txt";
  const std::string in_order = "--set data.shuffle=false --set checkpoint.path=" + (scratch / "order");
  ASSERT_EQ(run_program(train_line(scratch, config, "run", in_order)).exit_code, 0);
  run_program("yes 'more of the same text' | head -n 40 >> " + text);
  const std::string resume = in_order + " --set checkpoint.resume=auto --set train.steps=5";
  const Outcome grown = run_program(train_line(scratch, config, "run", resume));
  EXPECT_EQ(grown.exit_code, 0) << grown.err;
  EXPECT_NE(grown.err.find("the new samples follow"), std::string::npos) << grown.err;
  run_program("printf X | dd of=" + text + " bs=1 seek=7 conv=notrunc; echo and more of it >> " + text);
  const Outcome other = run_program(train_line(scratch, config, "run", resume + " --set train.steps=6"));
  EXPECT_EQ(other.exit_code, 5) << other.err;
  EXPECT_NE(other.err.find("the checkpoint was made with data.path " + text), std::string::npos) << other.err;
}

TEST(ResumeChanges, AnotherNumberOfStepsIsNamed) {
  const ScratchFolder scratch;
  const std::string config = write_saved_run(scratch, "run");
  const auto resume = [&](const std::string& sets) {
    const Outcome resumed = run_program(train_line(scratch, config, "run", "--set checkpoint.resume=auto " + sets));
    EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
    return resumed;
  };
  EXPECT_NE(resume("--set train.steps=5").out.find("train.steps 4, and this run has 5\n"), std::string::npos);
  EXPECT_EQ(resume("--set train.steps=6 --set lr_schedule.name=cosine").err,
            "warning: the checkpoint was made with train.steps 5, and this run has 6: the learning rate of lr_schedule "
            "cosine depends on it\n");
}

TEST(ResumeChanges, AFreshRunKeepsWhatAnEarlierOneHasLeft) {
  const ScratchFolder scratch;
  const std::string config = write_saved_run(scratch, "run");
  const std::string former = read_file(scratch / "run/metrics.jsonl");
  run_program("rm -r " + (scratch / "run/c"));
  const Outcome fresh = run_program(train_line(scratch, config, "run", "--set train.steps=2"));
  EXPECT_EQ(fresh.exit_code, 0) << fresh.err;
  EXPECT_NE(fresh.out.find("metrics of an earlier run: kept as " + (scratch / "run/metrics.1.jsonl")),
            std::string::npos)
      << fresh.out;
  EXPECT_EQ(read_file(scratch / "run/metrics.1.jsonl"), former);
  EXPECT_EQ(lines_of(scratch, "run"), 2);
  for (const char* kept : {"config.1.yaml", "report.1.html", "report.1.json"})
    EXPECT_FALSE(read_file(scratch / (std::string("run/") + kept)).empty()) << kept;
}

// The checkpoint directory has later steps than the checkpoint from which the run is to resume.
TEST(ResumeChanges, AnEarlierRunsCheckpointsAreNotTakenByARestart) {
  const ScratchFolder scratch;
  const std::string config = write_saved_run(scratch, "run"), folder = scratch / "run/c";
  run_program("cp -r " + folder + " " + (scratch / "kept"));
  const auto train = [&](const std::string& restarts, const std::string& resume) {
    run_program(fmt::format("rm -r {0}; cp -r {1} {0}", folder, scratch / "kept"));
    return run_program(restarts +
                       train_line(scratch, config, "run",
                                  "--set checkpoint.every=0 --set train.steps=5 --set checkpoint.resume=" + resume));
  };
  for (const std::string& resume : {std::string("none"), folder + "/step-000002", scratch / "kept/step-000004"}) {
    SCOPED_TRACE(resume);
    const Outcome refused = train("GANTRY_RESTART=0 GANTRY_RESTARTS=3 ", resume);
    EXPECT_EQ(refused.exit_code, 5) << refused.err;
    EXPECT_NE(
        refused.err.find("checkpoint.path: " + folder +
                         "/step-000004: the checkpoint is from an earlier run, but a restart would resume from it"),
        std::string::npos)
        << refused.err;
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
    EXPECT_EQ(lines_of(scratch, "run"), 4);
  }
  const Outcome warned = train("", folder + "/step-000002");
  EXPECT_EQ(warned.exit_code, 0) << warned.err;
  EXPECT_EQ(warned.err, "warning: " + folder +
                            "/step-000004 is from an earlier run; resume: auto would load it until " +
                            "this run saves a later step\n");
  // The directory has no checkpoints of another run, or the run is to resume from them.
  for (const std::string& resume : {std::string("auto"), folder, folder + "/step-000004/"}) {
    const Outcome taken = train("GANTRY_RESTARTS=3 ", resume);
    EXPECT_EQ(taken.exit_code, 0) << taken.err;
    EXPECT_EQ(taken.err, "");
  }
}

}  // namespace
}  // namespace gantry::testing
