"""Rounds: the ranks of a gang start anew inside living pods. Pure: what was heard goes in, orders and actions come out.

    member.report(now)  ->  leader.hear(report, now)        with each beat
    leader.turn(now)                                        decides
    leader.order  ->  member.hear(order, heard, now)        with each beat: actions for the agent

Standard library alone, and nothing newer than Python 3.10: agents in images that are not ours run this too.
"""
