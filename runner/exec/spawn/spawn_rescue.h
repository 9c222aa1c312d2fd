// Ends starts that do not reach their exec.
//
// Between clone and exec a program already has its tenant's uid while its parent, this host's thread or the
// reaper, is suspended: a process of that uid can stop it there, and a PATH may hold thousands of slow
// elements. So one thread checks running starts every 100 ms, and kills a program whose cancellation has
// fired before it was started. It sleeps while nothing starts.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <thread>

#include "lib/error.h"

namespace isogate {

struct StartUnderWay {
  int cancel_fd = -1;
  int pidfd = -1;                  // written by the kernel at the clone; stays open while it is watched
  const int32_t* stage = nullptr;  // SpawnReport's: past kStageBorn there is a child, and pidfd is its
  int started = 0;                 // set once the exec has succeeded, or the child has ended
};

class SpawnRescuer {  // any thread
 public:
  SpawnRescuer() = default;
  Result<void> start();  // once, before the first Watch
  ~SpawnRescuer();
  SpawnRescuer(const SpawnRescuer&) = delete;
  SpawnRescuer& operator=(const SpawnRescuer&) = delete;

  // Watched while the Watch lives; without a cancel_fd there is nothing to watch.
  class Watch {
   public:
    Watch(SpawnRescuer& rescuer, StartUnderWay& start);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    friend class SpawnRescuer;
    SpawnRescuer& rescuer_;
    std::list<StartUnderWay*> node_;  // of one; empty while it is in the rescuer's list
    std::list<StartUnderWay*>::iterator place_;
    bool watched_;
  };

 private:
  void look_after_all();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<StartUnderWay*> starts_;
  bool asleep_ = false, ending_ = false;
  std::thread thread_;
};

}  // namespace isogate
