"""Ad impressions and clicks: which impression is each click put down to?"""
