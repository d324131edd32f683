// SPDX-License-Identifier: Apache-2.0
// An event loop that runs ns-3 in step with the wall clock.
#pragma once

#include "ns3/event-impl.h"
#include "ns3/scheduler.h"
#include "ns3/simulator-impl.h"

#include <functional>
#include <list>
#include <poll.h>
#include <vector>

namespace medium
{

/// ns-3's own real-time simulator locks a mutex per event, spins, and needs a
/// reader thread per device. This one is a single thread that sleeps in ppoll:
/// until the next event is due, or until a watched descriptor can be read.
class RealtimeSimulator : public ns3::SimulatorImpl
{
  public:
    static ns3::TypeId GetTypeId();
    RealtimeSimulator();

    /// The running instance.
    static RealtimeSimulator& Get();

    /// Calls onReadable (outside any event) whenever fd can be read.
    void Watch(int fd, std::function<void()> onReadable);
    void Unwatch(int fd);
    /// Schedules an event at the current real time, even if the simulation
    /// lags: the event's time is that of the arrival.
    void ScheduleArrival(uint32_t context, ns3::EventImpl* event);
    /// Real minus simulated time in ns, when called within an event.
    int64_t Lag() const;

    void Destroy() override;
    bool IsFinished() const override;
    void Stop() override;
    void Stop(const ns3::Time& delay) override;
    ns3::EventId Schedule(const ns3::Time& delay, ns3::EventImpl* event) override;
    void ScheduleWithContext(uint32_t context, const ns3::Time& delay, ns3::EventImpl* event) override;
    ns3::EventId ScheduleNow(ns3::EventImpl* event) override;
    ns3::EventId ScheduleDestroy(ns3::EventImpl* event) override;
    void Remove(const ns3::EventId& id) override;
    void Cancel(const ns3::EventId& id) override;
    bool IsExpired(const ns3::EventId& id) const override;
    void Run() override;
    ns3::Time Now() const override;
    ns3::Time GetDelayLeft(const ns3::EventId& id) const override;
    ns3::Time GetMaximumSimulationTime() const override;
    void SetScheduler(ns3::ObjectFactory factory) override;
    uint32_t GetSystemId() const override;
    uint32_t GetContext() const override;
    uint64_t GetEventCount() const override;

  private:
    uint64_t RealNow() const; // ns since Run() began
    ns3::EventId Insert(uint32_t context, uint64_t ts, ns3::EventImpl* event);
    void ExecuteNext();
    void PollDescriptors(uint64_t timeoutNs);

    ns3::Ptr<ns3::Scheduler> m_events;
    std::list<ns3::EventId> m_atDestroy;
    std::vector<pollfd> m_polled;
    std::vector<std::function<void()>> m_onReadable; // parallel to m_polled
    bool m_stop = false;
    uint64_t m_origin = 0; // CLOCK_MONOTONIC in ns at simulated time 0
    uint64_t m_now = 0;    // simulated time, ns
    uint32_t m_uid;        // of the running event
    uint32_t m_nextUid;
    uint32_t m_context;
    uint64_t m_executed = 0;
};

} // namespace medium
