"""Share out partitions among the members of a coordinator's group, on the member that leads it.

An assignor is a pure function of the topics' partitions and the members' subscriptions. Brokers
see its name alone.

Doors: `assignor_table.find_assignor` gives an assignor by its name on the wire, `assignor.Assignor`
says what it can be asked for, `members.MemberSubscription` is what it gets of a member.
"""
