#include "gantry/comm/mpi/mpi_transport.h"

#include "gantry/comm/mpi/mpi_environment.h"

namespace gantry {
namespace {

class MpiChannel final : public Transport::Channel {
 public:
  explicit MpiChannel(MPI_Comm communicator) : communicator_(communicator) {}
  ~MpiChannel() override {
    if (mpi_is_running()) MPI_Comm_free(&communicator_);
  }
  MPI_Comm communicator() const { return communicator_; }

 private:
  MPI_Comm communicator_;
};

MPI_Comm communicator_of(const Transport::Channel& channel) {
  return static_cast<const MpiChannel&>(channel).communicator();
}

class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(double timeout_seconds) : timeout_seconds_(timeout_seconds) {
    requests_.reserve(kUsualRequests);
    numbers_.reserve(kUsualRequests);
    indices_.reserve(kUsualRequests);
    statuses_.reserve(kUsualRequests);
  }

  const char* name() const override { return "mpi"; }
  int rank() const override { return mpi_world_rank(); }
  int size() const override { return mpi_world_size(); }
  int largest_tag() const override;

  std::vector<std::string> gather(const std::string& mine, const std::string& waited) override;
  std::unique_ptr<Channel> open_channel(const std::vector<int>& ranks, std::uint64_t number,
                                        const std::string& waited) override;

  void send(Channel& channel, int peer, int tag, const void* data, std::int64_t bytes, int request) override {
    check_mpi(
        MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, communicator_of(channel), add_request(request)),
        "MPI_Isend");
  }
  void receive(Channel& channel, int peer, int tag, void* data, std::int64_t bytes, int request) override {
    check_mpi(
        MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, communicator_of(channel), add_request(request)),
        "MPI_Irecv");
  }
  void test_some(std::vector<Completion>& done) override;
  bool probe(Channel& channel, int peer, int tag) override {
    int found = 0;
    MPI_Iprobe(peer, tag, communicator_of(channel), &found, MPI_STATUS_IGNORE);
    return found != 0;
  }

 private:
  // Reserved requests. The number in flight depends on timing. Above this number, a request may allocate
  // memory.
  static constexpr std::size_t kUsualRequests = 1024;

  MPI_Request* add_request(int number) {
    numbers_.push_back(number);
    return &requests_.emplace_back(MPI_REQUEST_NULL);
  }

  const double timeout_seconds_;
  std::vector<MPI_Request> requests_;
  std::vector<int> numbers_;  // in the order of requests_
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
};

int MpiTransport::largest_tag() const {
  int* largest = nullptr;
  int found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &largest, &found);
  return found ? *largest : 32767;  // the minimum that the standard guarantees
}

std::vector<std::string> MpiTransport::gather(const std::string& mine, const std::string& waited) {
  const Watchdog watchdog(timeout_seconds_, waited);
  const int bytes = static_cast<int>(mine.size());
  std::string all(mine.size() * static_cast<std::size_t>(size()), '\0');
  check_mpi(MPI_Allgather(mine.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, MPI_COMM_WORLD), "MPI_Allgather");
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < all.size(); at += mine.size()) parts.push_back(all.substr(at, mine.size()));
  return parts;
}

std::unique_ptr<Transport::Channel> MpiTransport::open_channel(const std::vector<int>& ranks, std::uint64_t,
                                                               const std::string& waited) {
  constexpr int kTag = 0;  // members make their groups in the same order, so one tag is enough
  const Watchdog watchdog(timeout_seconds_, waited);
  MPI_Group world = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
  MPI_Comm communicator = MPI_COMM_NULL;
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &members), "MPI_Group_incl");
  check_mpi(MPI_Comm_create_group(MPI_COMM_WORLD, members, kTag, &communicator), "MPI_Comm_create_group");
  MPI_Group_free(&members);
  MPI_Group_free(&world);
  MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
  return std::make_unique<MpiChannel>(communicator);
}

void MpiTransport::test_some(std::vector<Completion>& done) {
  const std::size_t count = requests_.size();
  if (count == 0) return;
  indices_.resize(count);
  statuses_.resize(count);
  int found = 0;
  const int code = MPI_Testsome(static_cast<int>(count), requests_.data(), &found, indices_.data(), statuses_.data());
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) check_mpi(code, "MPI_Testsome");
  if (found <= 0) return;  // MPI_UNDEFINED is negative

  for (std::size_t i = 0; i < static_cast<std::size_t>(found); ++i) {
    Completion& end = done.emplace_back();
    end.request = numbers_[static_cast<std::size_t>(indices_[i])];
    const int fault = code == MPI_SUCCESS ? MPI_SUCCESS : statuses_[i].MPI_ERROR;
    int bytes = 0, kind = MPI_SUCCESS;
    if (fault == MPI_SUCCESS) {
      MPI_Get_count(&statuses_[i], MPI_BYTE, &bytes);
      end.bytes = bytes;
      continue;
    }
    MPI_Error_class(fault, &kind);
    end.too_long = kind == MPI_ERR_TRUNCATE;
    if (!end.too_long) end.trouble = mpi_error_text(fault);
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    requests_[kept] = requests_[i];
    numbers_[kept++] = numbers_[i];
  }
  requests_.resize(kept);
  numbers_.resize(kept);
}

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(double timeout_seconds) {
  mpi_initialise();
  return std::make_unique<MpiTransport>(timeout_seconds);
}

}  // namespace gantry
