from bayestree._utils.wording import limit


def test_a_limit_that_rounds_to_zero_has_no_sign():
    assert limit(-0.001, 1.0) == "0.00"
    assert limit(-0.01, 1.0) == "-0.01"
